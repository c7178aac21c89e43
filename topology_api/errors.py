"""The errors that Squall raises on purpose: one tree under SquallError.

A message names the failure, its place (topology, component, task), the offending value, and the next step. Errors can be
pickled (`args` are the constructor's arguments), because they travel between processes.
Must not know: the rest of the package, which imports this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = [
    "CannotPack",
    "EmitError",
    "FailTuple",
    "GroupingError",
    "InvalidConfig",
    "InvalidTopology",
    "NameTaken",
    "NoSuchTopology",
    "NotYet",
    "RowsRefused",
    "SquallError",
    "StateError",
    "TopologyFailed",
]


class SquallError(Exception):
    """Base of all errors that Squall raises on purpose."""


def _listed(head: str, problems: tuple[str, ...]) -> str:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = ["  - " + problem.replace("\n", "\n    ") for problem in problems]
    return "\n".join([f"{head} has {count}:", *lines])


class InvalidTopology(SquallError):
    """A topology cannot run. `problems` holds every problem that was found, not only the first."""

    def __init__(self, problems: Iterable[str], name: str | None = None) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        self.name = name
        super().__init__(self.problems, name)

    def __str__(self) -> str:
        return _listed("the topology" if self.name is None else f"topology {self.name!r}", self.problems)


class InvalidConfig(SquallError):
    """Settings are invalid. `problems` holds every problem that was found; `name` says whose settings they are."""

    def __init__(self, problems: Iterable[str], name: str | None = None) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        self.name = name
        super().__init__(self.problems, name)

    def __str__(self) -> str:
        head = "the configuration" if self.name is None else f"the configuration of {self.name}"
        return _listed(head, self.problems)


class EmitError(SquallError):
    """A call of emit, ack or fail is not allowed.

    The reason may be a wrong number of values, an unknown stream, misuse of a direct stream, a tuple that was already acked or
    failed, or a call outside the task's own thread, in `cleanup`, or outside a running task. Nothing was sent, except the first
    `emitted` rows of `emit_many`.
    """

    emitted: int = 0


class GroupingError(EmitError):
    """A grouping cannot choose a task: a key has a type that fields groupings do not accept, or a custom grouping returned
    something other than a sequence of its target tasks.
    """


class StateError(SquallError):
    """State cannot be used, or kept, as the code does it.

    The reason may be a call without a key at hand, a value of another type than was declared, a value that cannot be encoded,
    or a broadcast state that is written for a tuple that not all tasks get. Nothing of the call's changes stays.
    """


class FailTuple(Exception):
    """Raise FailTuple in `execute` or `execute_batch` to fail the tuple (the batch) without an error report.

    The reason reaches the spout as `Failure.error`. FailTuple is not a SquallError, because users raise it, not Squall.
    """

    reason: str | None = None  # for subclasses whose constructor does not call this class's

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return "the tuple was failed" if self.reason is None else str(self.reason)


class RowsRefused(Exception):
    """Raise RowsRefused in `write` of a TokenSink, or in `stage` of a StagedSink, for rows that the system will never take.

    Nothing must have been written or staged. The tuples of these rows become dead letters, or fail without
    `topology.state.path`, and the call is made again with the other rows. For a system that does not answer, raise any other
    exception: then all rows wait. Like FailTuple, RowsRefused is not a SquallError.

    Name all such rows at once: each time that `write` refuses rows, the others wait for one more commit.

    reasons: why each row is refused, by its position in the list that the call got.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.reasons = dict(reasons)
        super().__init__(self.reasons)

    def __str__(self) -> str:
        count = len(self.reasons)
        first = next(iter(self.reasons.values()), "no reason")
        return f"{'1 row is' if count == 1 else f'{count:,} rows are'} refused: {first}"


class NotYet(SquallError):
    """A feature is planned but missing. The text says what to do instead."""

    def __init__(self, what: str, alternative: str | None = None) -> None:
        self.what = what
        self.alternative = alternative
        super().__init__(what, alternative)

    def __str__(self) -> str:
        text = f"not yet: {self.what}"
        return text if self.alternative is None else f"{text}; {self.alternative}"


class NoSuchTopology(SquallError):
    """No topology of this name is known here."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)

    def __str__(self) -> str:
        return f"there is no topology named {self.name!r}"


class NameTaken(SquallError):
    """The name is in use. An ended topology keeps its name until it is killed, a killed topology until its workers are gone."""

    def __init__(self, name: str, being_killed: bool = False) -> None:
        self.name = name
        self.being_killed = being_killed
        super().__init__(name, being_killed)

    def __str__(self) -> str:
        if self.being_killed:
            return f"a topology named {self.name!r} is being killed: submit again when it is gone, or under another name"
        return f"a topology named {self.name!r} exists already: kill it first, or submit under another name"


class TopologyFailed(SquallError):
    """A topology stopped because of an error; `report` is the text of that error."""

    def __init__(self, name: str, report: str) -> None:
        self.name = name
        self.report = report
        super().__init__(name, report)

    def __str__(self) -> str:
        return f"topology {self.name!r} failed:\n{self.report}"


class CannotPack(SquallError):
    """A component (or a custom grouping) cannot be shipped to a worker.

    `component` names the component, `attribute` is the path of the part that cannot be pickled (such as `self.db.lock`),
    `reason` is pickle's message.
    """

    def __init__(self, component: str, attribute: str, reason: str) -> None:
        self.component = component
        self.attribute = attribute
        self.reason = reason
        super().__init__(component, attribute, reason)

    def __str__(self) -> str:
        return (
            f"{self.component}: {self.attribute} cannot be shipped to a worker: {self.reason}"
            " (create it in open or prepare instead of the constructor: these two run in the worker)"
        )
