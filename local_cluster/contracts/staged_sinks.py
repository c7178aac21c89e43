"""`check_staged_sink` tries every promise of a StagedSink, with a fault at each line of its calls.

Must not know: where rows are staged.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from local_cluster.contracts.interruption import Fault, Killed, Meanwhile, OwnCode, Place, attempted, where
from local_cluster.contracts.opened import COMPONENT
from local_cluster.contracts.promises import Broken, try_all
from local_cluster.contracts.sinks import SinkPlace, SinkTrial
from topology_api import CommittingSink, StagedSink
from worker.epochs.sinks import heir_of, kept_handle

#: The rows of an epoch that is larger than others.
MANY = 2_000


def check_staged_sink(
    make: Callable[[], StagedSink],
    values: Callable[[int], Mapping[str, Any]],
    visible: Callable[[], Iterable[Any]],
    *,
    staged: Callable[[], int] | None = None,
    whole_epochs: bool = False,
    code: Iterable[ModuleType] = (),
) -> None:
    """Check that a StagedSink keeps its contract: each row is visible once, epoch by epoch, whatever is killed.

    The sink is used as by the workers of a topology: staged epochs are committed late, twice, or by a new object; a call is
    ended, fails or waits at each line of the sink's own code, while another process makes the same call. Raises ContractBroken
    with all promises that are broken.

    make: returns a new sink; each must write to the same place. The place may have other rows in it.
    values: returns the n-th tuple, as a dict from field to value. No two may be equal, and each must make a row.
    visible: returns all rows that a reader of the place sees now, as tuples or dicts of the values, in any order.
    staged: returns how many things are staged, if you want to check that what killed processes have left is removed with the
        commit of a later epoch by the same task.
    whole_epochs: the first commit of an epoch shows the rows of all its tasks together. In a topology all tasks have staged an
        epoch before one of them commits it, so this is as right as rows that become visible task by task.
    code: modules of the sink that are not in the folders of its class and base classes. Calls are interrupted at their
        lines, too.
    """
    place = SinkPlace(StagedSink, make, values, visible)
    own = tuple(code)
    try_all(place.name, promises_of(staged, whole_epochs), lambda: StagedTrial(place, own))


def promises_of(
    staged: Callable[[], int] | None, whole_epochs: bool
) -> dict[str, Callable[[StagedTrial], None]]:
    """Return the promises of a sink: see `check_staged_sink`."""
    promises = {**PROMISES, **(TOGETHER if whole_epochs else APART)}
    if staged is not None:
        promises["what a killed process has left is removed with a later commit"] = partial(
            leftovers_are_removed, staged=staged
        )
    return promises


class StagedTrial(SinkTrial[StagedSink]):
    """One try of one promise."""

    def __init__(self, place: SinkPlace[StagedSink], code: Iterable[ModuleType] = ()) -> None:
        super().__init__(place)
        self.code = code
        self.lineage = uuid.uuid4().hex[:16]

    def begin(self, sink: StagedSink) -> None:
        sink.lineage = self.lineage

    def own_code(self, sink: StagedSink) -> OwnCode:
        """Return the code at whose lines calls are interrupted."""
        return OwnCode(type(sink), self.code)

    def stage(self, sink: StagedSink, epoch: int | None, rows: list[Any]) -> Any:
        """Return the handle, as it is in a commit."""
        handle = self.calls.make(f"stage({epoch})", lambda: sink.stage(epoch, list(rows)))
        if handle is None:
            raise Broken(f"stage({epoch}) returned None for {len(rows)} rows: they can never be visible")
        try:
            return kept_handle(handle)
        except Exception as error:
            raise Broken(f"the handle of stage({epoch}) is no msgpack value: {error}") from error

    def commit(self, sink: StagedSink, epoch: int | None, handle: Any) -> None:
        self.calls.make(f"commit({epoch})", lambda: sink.commit(epoch, kept_handle(handle)))

    def abort(self, sink: StagedSink, epoch: int | None, handle: Any) -> None:
        self.calls.make(f"abort({epoch})", lambda: sink.abort(epoch, kept_handle(handle)))


def rows_are_hidden(trial: StagedTrial) -> None:
    sink = trial.sink()
    rows = trial.rows(sink)
    handle = trial.stage(sink, 3, rows)
    trial.check("after stage and before commit")
    trial.commit(sink, 3, handle)
    trial.now_visible(rows)
    trial.check("after commit")


def commits_may_be_repeated(trial: StagedTrial) -> None:
    sink = trial.sink()
    rows = trial.rows(sink)
    handle = trial.stage(sink, 1, rows)
    trial.now_visible(rows)
    for again in (sink, sink, trial.sink(), trial.sink()):
        trial.commit(again, 1, handle)
        trial.check("after each commit of the same handle")
    later = trial.rows(sink)
    handle_of_later = trial.stage(sink, 2, later)
    trial.commit(sink, 2, handle_of_later)
    trial.now_visible(later)
    trial.commit(trial.sink(), 1, handle)  # a process that was frozen
    trial.commit(trial.sink(), 2, handle_of_later)
    trial.check("after the commits were repeated behind a later one")


def other_processes_commit(trial: StagedTrial) -> None:
    rows = trial.rows(trial.sink())
    handle = trial.stage(trial.sink(), 4, rows)
    trial.commit(trial.sink(), 4, handle)
    trial.now_visible(rows)
    trial.check("after a commit by another process than the one that staged")


def staged_ahead(trial: StagedTrial) -> None:
    sink, kept = trial.sink(), []
    for epoch in (1, 2, 5, 6):
        rows = trial.rows(sink)
        kept.append((epoch, trial.stage(sink, epoch, rows), rows))
    trial.check("with four epochs staged and none committed")
    for number, (epoch, handle, rows) in enumerate(kept):
        trial.commit(sink if number < 2 else trial.sink(), epoch, handle)
        trial.now_visible(rows)
        trial.check("with further epochs staged ahead")


def aborted_rows(trial: StagedTrial) -> None:
    sink = trial.sink()
    handle = trial.stage(sink, 1, trial.rows(sink))
    for again in (sink, sink, trial.sink()):
        trial.abort(again, 1, handle)
        trial.check("after abort")
    rows = trial.rows(sink)
    trial.commit(sink, 2, trial.stage(sink, 2, rows))
    trial.now_visible(rows)
    trial.abort(trial.sink(), 1, handle)
    trial.check("after a later epoch was committed")


def staged_again(trial: StagedTrial) -> None:
    for epoch, early in ((1, True), (2, False), (3, None)):
        old, new = trial.sink(), trial.sink()
        void = trial.stage(old, epoch, trial.rows(old))
        rows = trial.rows(new)
        handle = trial.stage(new, epoch, rows)
        if early:
            trial.abort(old, epoch, void)
        trial.check("after the same epoch was staged twice")
        trial.commit(new, epoch, handle)
        trial.now_visible(rows)
        if early is False:
            trial.abort(old, epoch, void)
        trial.check(
            "after the second of two attempts at an epoch was committed, and the first one aborted or left"
        )


def late_stage(trial: StagedTrial) -> None:
    old, new = trial.sink(), trial.sink()
    for epoch in (1, 2):
        rows = trial.rows(new)
        trial.commit(new, epoch, trial.stage(new, epoch, rows))
        trial.now_visible(rows)
    void = trial.stage(old, 1, trial.rows(old))
    trial.check("after a process that was frozen has staged epoch 1 behind the commit of epoch 2")
    rows = trial.rows(new)
    trial.commit(new, 3, trial.stage(new, 3, rows))
    trial.now_visible(rows)
    trial.abort(trial.sink(), 1, void)
    trial.check("after the commit of epoch 3")


def tasks_are_apart(trial: StagedTrial) -> None:
    staged = []
    for index in range(4):
        sink = trial.sink(index)
        rows = trial.rows(sink)
        staged.append((index, trial.stage(sink, 7, rows), rows))
    heirs = [trial.sink(index) for index in range(2)]
    for index, handle, rows in staged:
        trial.commit(heirs[heir_of(index, 2)], 7, handle)
        trial.now_visible(rows)
        trial.check("after four tasks staged an epoch, and two committed it for all")


def components_are_apart(trial: StagedTrial, tasks: int) -> None:
    names = (COMPONENT, f"{COMPONENT}-0", f"{COMPONENT}-1")
    sinks = [trial.sink(0, name) for name in names] + [trial.sink(index) for index in range(1, tasks)]
    staged = []
    for sink in sinks:
        rows = trial.rows(sink)
        staged.append((sink, trial.stage(sink, 1, rows), rows))
    for sink, handle, rows in staged:
        trial.commit(sink, 1, handle)
        trial.now_visible(rows)
        trial.check("with several sinks of one topology at one place")


def lineages_are_apart(trial: StagedTrial) -> None:
    sinks = []
    for _ in range(2):
        trial.lineage = uuid.uuid4().hex[:16]
        sinks.append(trial.sink())
    staged = []
    for sink in sinks:
        rows = trial.rows(sink)
        staged.append((sink, trial.stage(sink, 1, rows), rows))
    for sink, handle, rows in staged:
        trial.commit(sink, 1, handle)
        trial.now_visible(rows)
        trial.check("with epoch 1 of two lineages")


def whole_epoch(trial: StagedTrial) -> None:
    """Tasks stage an epoch; the first commit shows all of it, and the commits of the others change nothing."""
    for epoch, tasks in ((7, 4), (9, 1), (10, 2)):
        staged = staged_by_all(trial, epoch, tasks)
        trial.check("with an epoch staged by all tasks and committed by none")
        heirs = [trial.sink(index) for index in range(2)]
        for index, handle, _ in staged:
            trial.commit(heirs[heir_of(index, 2)], epoch, handle)
            if index == 0:
                trial.now_visible(row for _, _, rows in staged for row in rows)
            trial.check(
                f"after {tasks} task(s) staged an epoch, and two commit it for all, one after the other"
            )


def staged_by_all(trial: StagedTrial, epoch: int, tasks: int) -> list[tuple[int, Any, list[Any]]]:
    """Return (index, handle, rows) of each task."""
    staged = []
    for index in range(tasks):
        sink = trial.sink(index)
        rows = trial.rows(sink)
        staged.append((index, trial.stage(sink, epoch, rows), rows))
    return staged


def tasks_commit_at_once(trial: StagedTrial) -> None:
    """At each line of a task's commit another task commits the same epoch."""
    tasks = [trial.sink(index) for index in range(2)]
    code = trial.own_code(tasks[0])
    handles = [handle for _, handle, _ in counted(trial, staged_by_all(trial, 1, 2))]
    places = code.places(lambda: trial.commit(tasks[0], 1, handles[0]))
    for epoch, place in enumerate(places, 2):
        handles = [handle for _, handle, _ in counted(trial, staged_by_all(trial, epoch, 2))]
        one, other = (trial.sink(index) for index in range(2))
        both = Meanwhile(partial(attempted, partial(other.commit, epoch, handles[1])))
        text = f"commit({epoch}) of a task, which waits at {where(place)} while another task commits"
        trial.calls.make(
            text,
            partial(attempted, partial(code.at, place, both.begin, partial(one.commit, epoch, handles[0]))),
        )
        both.end()
        for sink, handle in ((other, handles[1]), (one, handles[0])):
            trial.commit(sink, epoch, handle)
        trial.check(text)


def counted(trial: StagedTrial, staged: list[tuple[int, Any, list[Any]]]) -> list[tuple[int, Any, list[Any]]]:
    """Let the rows of all tasks be visible from now on."""
    trial.now_visible(row for _, _, rows in staged for row in rows)
    return staged


def without_epochs(trial: StagedTrial) -> None:
    trial.lineage = ""
    trial.around.without_epochs()
    sink = trial.sink()
    if type(sink).execute_batch is not CommittingSink.execute_batch:
        for _ in range(3):
            trial.batch(sink)
            trial.check("after execute_batch without topology.state.path")
        return
    for _ in range(3):
        rows = trial.rows(sink)
        trial.commit(sink, None, trial.stage(sink, None, rows))
        trial.now_visible(rows)
        trial.check("without topology.state.path (epoch None)")
    trial.abort(sink, None, trial.stage(sink, None, trial.rows(sink)))
    trial.check("after an abort without topology.state.path (epoch None)")


def large_epochs(trial: StagedTrial) -> None:
    sink = trial.sink()
    rows = trial.rows(sink, MANY)
    handle = trial.stage(sink, 1, rows)
    trial.check("before commit")
    trial.commit(trial.sink(), 1, handle)
    trial.now_visible(rows)
    trial.check("after commit")


def two_commit_at_once(trial: StagedTrial) -> None:
    """At each line of commit another process makes the same commit; one of the two may fail, and is made again."""
    sink = trial.sink()
    code = trial.own_code(sink)
    rows = trial.rows(sink)
    handle = trial.stage(sink, 1, rows)
    trial.now_visible(rows)
    places = code.places(lambda: trial.commit(sink, 1, handle))
    for epoch, place in enumerate(places, 2):
        one, other = trial.sink(), trial.sink()
        rows = trial.rows(one)
        handle = trial.stage(one, epoch, rows)
        both = Meanwhile(partial(attempted, partial(other.commit, epoch, handle)))
        text = f"commit({epoch}), which waits at {where(place)} while another process commits"
        trial.calls.make(
            text, partial(attempted, partial(code.at, place, both.begin, partial(one.commit, epoch, handle)))
        )
        both.end()
        trial.commit(other, epoch, handle)
        trial.now_visible(rows)
        trial.check(text)


def rows_meanwhile(trial: StagedTrial) -> None:
    """At each line of `stage` and of `commit` the task makes rows of the next epoch."""
    sink = trial.sink()
    code = trial.own_code(sink)
    rows, handles = trial.rows(sink), []
    in_stage_of = code.places(lambda: handles.append(trial.stage(sink, 1, rows)))
    in_commit_of = code.places(lambda: trial.commit(sink, 1, handles[0]))
    trial.now_visible(rows)
    rows = trial.rows(sink)
    for epoch, place in enumerate([*in_stage_of, *in_commit_of], 2):
        made: list[Any] = []
        both = Meanwhile(lambda made=made: made.extend(trial.rows(sink)))  # type: ignore[misc]
        handle = code.at(place, both.begin_once, partial(trial.stage, sink, epoch, rows))
        code.at(place, both.begin_once, partial(trial.commit, sink, epoch, handle))
        both.end()
        trial.now_visible(rows)
        trial.check(f"after epoch {epoch}, with rows made while a call waited at {where(place)}")
        rows = made


def interrupted(trial: StagedTrial, killed: bool, story: Callable[[Interruption], None]) -> None:
    """Play a story once for each line of the call in it that is interrupted."""
    sink = trial.sink()
    code = trial.own_code(sink)
    first = Interruption(trial, code, 1, killed)
    story(first)
    for epoch, place in enumerate(first.places, 2):
        story(Interruption(trial, code, epoch, killed, place))


class Interruption:
    """One epoch, in which a call is interrupted at a line. Without a line, the lines of the call are noted."""

    def __init__(
        self, trial: StagedTrial, code: OwnCode, epoch: int, killed: bool, place: Place | None = None
    ) -> None:
        self.trial, self.code, self.epoch, self.killed, self.place = trial, code, epoch, killed, place
        self.sink = trial.sink()
        self.places: list[Place] = []

    def interrupt(self, name: str, call: Callable[[], Any]) -> None:
        """Make a call which ends at the line; a killed process is followed by another one."""
        if self.place is None:
            self.places = self.code.places(call)
            if self.killed:  # at the end of the call
                self.sink = self.trial.sink()
            return
        end = "killed" if self.killed else "which raises"
        self.trial.calls.made.append(f"{name}({self.epoch}), {end} at {where(self.place)}")
        self.code.ended_at(self.place, Killed if self.killed else Fault, call)
        if self.killed:
            self.sink = self.trial.sink()

    def check(self, name: str) -> None:
        self.trial.check(f"after {name}({self.epoch}) was interrupted")


def in_stage(each: Interruption) -> None:
    trial, epoch, sink = each.trial, each.epoch, each.sink
    rows = trial.rows(sink)
    each.interrupt("stage", lambda: sink.stage(epoch, list(rows)))
    each.check("stage")
    if each.killed:
        rows = trial.rows(each.sink)
    trial.commit(each.sink, epoch, trial.stage(each.sink, epoch, rows))
    trial.now_visible(rows)
    each.check("stage")


def in_commit(each: Interruption) -> None:
    trial, epoch, sink = each.trial, each.epoch, each.sink
    rows = trial.rows(sink)
    handle = trial.stage(sink, epoch, rows)
    each.interrupt("commit", lambda: sink.commit(epoch, kept_handle(handle)))
    trial.commit(each.sink, epoch, handle)
    trial.now_visible(rows)
    each.check("commit")


def in_commit_of_all(each: Interruption) -> None:
    """The commit of one of two tasks is interrupted; then the other one commits, and the first one or its heir."""
    trial, epoch = each.trial, each.epoch
    staged = staged_by_all(trial, epoch, 2)
    before = trial.expected.copy()
    trial.now_visible(row for _, _, rows in staged for row in rows)
    each.interrupt("commit", lambda: each.sink.commit(epoch, kept_handle(staged[0][1])))
    if (whole := trial.problem()) is not None:
        after, trial.expected = trial.expected, before
        if trial.problem() is not None:
            raise Broken(f"after commit({epoch}) was interrupted, a part of the epoch is visible: {whole}")
        trial.expected = after
    trial.commit(trial.sink(1), epoch, staged[1][1])
    each.check("commit")
    trial.commit(each.sink, epoch, staged[0][1])
    each.check("commit")


def in_abort(each: Interruption) -> None:
    trial, epoch, sink = each.trial, each.epoch, each.sink
    handle = trial.stage(sink, epoch, trial.rows(sink))
    each.interrupt("abort", lambda: sink.abort(epoch, kept_handle(handle)))
    trial.abort(each.sink, epoch, handle)
    each.check("abort")


def leftovers_are_removed(trial: StagedTrial, staged: Callable[[], int]) -> None:
    before = staged()
    for epoch in (1, 2, 3):
        lost = trial.sink()
        trial.stage(lost, epoch, trial.rows(lost))
    sink = trial.sink()
    rows = trial.rows(sink)
    trial.commit(sink, 4, trial.stage(sink, 4, rows))
    trial.now_visible(rows)
    if (left := staged() - before) > 0:
        raise Broken(f"after a commit {left} thing(s) of three killed processes are still staged")
    trial.check("after what killed processes had left was removed")


PROMISES: Mapping[str, Callable[[StagedTrial], None]] = {
    "rows are hidden until their commit": rows_are_hidden,
    "a commit that is made again changes nothing": commits_may_be_repeated,
    "a new object in another process commits": other_processes_commit,
    "epochs that are staged ahead stay": staged_ahead,
    "aborted rows never become visible, and abort may be made again": aborted_rows,
    "an epoch that is staged again is committed once": staged_again,
    "what is staged late by a stale process stays hidden": late_stage,
    "lineages do not disturb each other": lineages_are_apart,
    "rows without an epoch become visible": without_epochs,
    "two processes may commit at once": two_commit_at_once,
    "rows may be made while stage or commit runs": rows_meanwhile,
    "a process may be killed in stage": partial(interrupted, killed=True, story=in_stage),
    "a process may be killed in commit": partial(interrupted, killed=True, story=in_commit),
    "a process may be killed in abort": partial(interrupted, killed=True, story=in_abort),
    "stage may raise at any line": partial(interrupted, killed=False, story=in_stage),
    "commit may raise at any line": partial(interrupted, killed=False, story=in_commit),
    "abort may raise at any line": partial(interrupted, killed=False, story=in_abort),
    "large epochs are whole": large_epochs,
}
#: What holds if the rows of each task become visible with its own commit.
APART: Mapping[str, Callable[[StagedTrial], None]] = {
    "tasks commit for others when parallelism shrinks": tasks_are_apart,
    "sinks of one topology do not disturb each other": partial(components_are_apart, tasks=2),
}
#: What holds if an epoch's rows of all tasks become visible together.
TOGETHER: Mapping[str, Callable[[StagedTrial], None]] = {
    "one commit shows the rows of all tasks": whole_epoch,
    "sinks of one topology do not disturb each other": partial(components_are_apart, tasks=1),
    "two tasks may commit at once": tasks_commit_at_once,
    "a process may be killed while it commits for all": partial(
        interrupted, killed=True, story=in_commit_of_all
    ),
    "a commit for all may raise at any line": partial(interrupted, killed=False, story=in_commit_of_all),
}
