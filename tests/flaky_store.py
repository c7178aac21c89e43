"""A store that fails chosen calls with `Unavailable`: before they are done, or after ("did it, but said timeout").

    store = FlakyStore(InMemoryStore())
    store.fail_write(3, AFTER)          # the third write from now is done, and its caller gets a timeout
    store.away = True                   # every call fails, watches stay quiet
    store.chooses = lambda call: AFTER if call.operation == "create" and "/topologies/" in call.path else None
    store.error = Death                 # raised in place of Unavailable: a daemon that dies at that write

Several wrappers may be used around one store (or around several sessions of one), each with its own failures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from squall.cluster.store import Cancel, Guard, Store, Unavailable, Watch

BEFORE: Final = "before"
"""The call fails and nothing was done."""
AFTER: Final = "after"
"""The call fails and was done all the same."""

T = TypeVar("T")


class Death(BaseException):
    """The daemon died while writing."""


@dataclass(frozen=True)
class Call:
    """A call that is about to be made."""

    operation: str
    """"get", "children", "owns", "put", "create" or "delete"."""
    path: str
    write: int | None
    """The how-manyth write through this wrapper it is, from 1; None: it writes nothing."""


def nothing_fails(call: Call) -> str | None:
    """The default of a new `FlakyStore`."""
    return None


class FlakyStore:
    """`squall.cluster.store.Store`, over another one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.chooses: Callable[[Call], str | None] = nothing_fails
        self.error: type[BaseException] = Unavailable
        self.away = False
        #: The number of writes, failed ones included; and the failed calls.
        self.writes = 0
        self.failed: list[Call] = []
        self._armed: dict[int, str] = {}

    def fail_write(self, number: int, how: str) -> None:
        """Fail the `number`-th write from now, the next one being 1."""
        self._armed[self.writes + number] = how

    @property
    def session_secs(self) -> float:
        """The length of the session below."""
        return self.store.session_secs

    def get(self, path: str) -> tuple[bytes, int] | None:
        """The value and its version; None without a value."""
        return self._call("get", path, lambda: self.store.get(path))

    def put(self, path: str, data: bytes, expected: int | None = None, guard: Guard | None = None) -> int:
        """Write a value."""
        return self._call("put", path, lambda: self.store.put(path, data, expected, guard))

    def create(self, path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        """Write a value where there is none."""
        return self._call("create", path, lambda: self.store.create(path, data, ephemeral, guard))

    def delete(self, path: str, expected: int | None = None, guard: Guard | None = None) -> None:
        """Remove a value."""
        self._call("delete", path, lambda: self.store.delete(path, expected, guard))

    def owns(self, path: str) -> bool:
        """Whether there is an ephemeral value of this session."""
        return self._call("owns", path, lambda: self.store.owns(path))

    def children(self, path: str) -> list[str]:
        """Names directly below `path` that have a value or lead to one."""
        return self._call("children", path, lambda: self.store.children(path))

    def watch(self, prefix: str, callback: Watch) -> Cancel:
        """Call `callback(path)` after each change at or below `prefix`, unless the store is away."""

        def tell(path: str) -> None:
            if not self.away:
                callback(path)

        return self.store.watch(prefix, tell)

    def _call(self, operation: str, path: str, do: Callable[[], T]) -> T:
        writes = operation in ("put", "create", "delete")
        self.writes += writes
        call = Call(operation, path, self.writes if writes else None)
        how = BEFORE if self.away else self.chooses(call)
        if writes:
            how = self._armed.pop(self.writes, how)
        if how is None:
            return do()
        self.failed.append(call)
        if how == AFTER:
            do()
        raise self.error(f"{operation} of {path}: the store did not answer in time")
