"""A session of twelve seconds that may fail at the next call, for the tests of elections and of presence."""

from __future__ import annotations

from squall.cluster.memory import InMemoryStore
from squall.cluster.store import Guard, Unavailable

SESSION = 12.0


class Session(InMemoryStore):
    """A session of 12 seconds whose next call may fail: before it is done, or after it."""

    session_secs = SESSION

    def __init__(self, store: InMemoryStore) -> None:
        super().__init__(store._tree)
        self.away = False
        self.lose_answer_of = ""
        self.calls: list[str] = []

    def _check_open(self) -> None:
        if self.away:
            raise Unavailable("away")
        super()._check_open()

    def _lost(self, call: str) -> None:
        self.calls.append(call)
        if self.lose_answer_of == call:
            self.lose_answer_of = ""
            raise Unavailable("done, but the answer was lost")

    def put(self, path: str, data: bytes, expected: int | None = None, guard: Guard | None = None) -> int:
        version = super().put(path, data, expected, guard)
        self._lost("put")
        return version

    def create(self, path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        version = super().create(path, data, ephemeral, guard)
        self._lost("create")
        return version

    def owns(self, path: str) -> bool:
        owned = super().owns(path)
        self._lost("owns")
        return owned
