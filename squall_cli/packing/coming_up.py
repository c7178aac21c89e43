"""Decides how far the start of a submitted topology has come: scheduled, workers up, first tree acked. Makes sentences from
values.

`Arrival` receives one status after the other. For each status it returns the progress; the last progress says that the topology
runs, or why it does not run.
Must not know: HTTP, terminals, the command that waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from squall.api.answers import TopologyAnswer, WorkerEntry
from squall.dead_letters.letter import undone
from squall.reports.error_reports import STARTING, raised
from squall.reports.event_text import repetition, sentence
from squall.reports.events import Event, subject
from squall.status import ComponentStatus
from squall_cli.cluster.events import own_paths
from squall_cli.cluster.placed import LAG_SECS, LEAVING, on_trial
from squall_cli.terminal.component_table import down_sentence
from squall_cli.terminal.epoch_lines import had_ended, wait_sentences
from squall_cli.terminal.formats import plural, to_type, whole

#: Seconds without progress after which the command stops waiting for a topology that has errors or events, such as a worker's
#: death.
TROUBLE_SECS: Final = 30.0
#: Seconds within which the workers of a failed version stop, and the previous version gets the name back.
ROLLBACK_SECS: Final = 20.0
#: Seconds within which the previous version usually gets the tuples that were pending.
HAND_OVER_SECS: Final = 20.0


class Seen(msgspec.Struct, frozen=True):
    """The progress that one status shows. `stages`: the new stages, one line each; `now`: the thing for which the topology
    still waits."""

    now: str
    stages: tuple[str, ...] = ()
    done: bool = False
    failure: str | None = None


@dataclass(eq=False)
class Arrival:
    """The start of one submission. If it replaces a version (`replaces`), Nimbus decides whether the new version is up or is
    rolled back, for as long as the previous version may return."""

    _name: str
    _id: str
    active: bool = True
    began: float = 0.0
    replaces: bool = False
    #: Whether the start is over when the tasks have found the state with which they begin.
    begins: bool = False
    _best: tuple[int, ...] = field(default=(0, 0, 0), init=False)
    _reported: set[str] = field(default_factory=set, init=False)
    _taken_over: bool = field(default=False, init=False)
    _events: set[Event] = field(default_factory=set, init=False)
    #: Since when a bolt has been seen down in each status, all its tasks.
    _down: float | None = field(default=None, init=False)
    #: When the topology was first seen as FAILED.
    _failed: float | None = field(default=None, init=False)
    #: When the previous version was first seen with the name again.
    _back: float | None = field(default=None, init=False)
    _was_on_trial: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._better = self.began  # the time of the last progress
        self._trial = self.began  # when the topology was last seen on trial

    def missing(self, now: float) -> Seen:
        """Process an answer of Nimbus saying that no topology has this name."""
        if not self._taken_over and now - self.began < LAG_SECS:
            return Seen("waiting for Nimbus to list the topology")
        return Seen("", failure=f"topology {self._name!r} is gone: it was killed")

    def update(self, status: TopologyAnswer, now: float) -> Seen:
        """Process a status of the topology with this name."""
        if status.id != self._id:
            return self._other(status, now)
        if not self._taken_over:
            self._taken_over = True
            self._better = now
        failure = failure_of(status)
        if failure is not None:
            self._failed = now if self._failed is None else self._failed
            if self.replaces and status.state == "FAILED" and now - self._failed < ROLLBACK_SECS:
                return Seen("the new version failed: waiting for the previous version")
            return Seen("", failure=failure)
        if self.begins and status.epoch is not None and status.epoch.began is not None:
            return Seen("", (f"begins with epoch {status.epoch.began}",), done=True)
        workers = [worker for worker in status.workers if worker.state not in LEAVING]
        up = sum(worker.opened for worker in workers)
        spouts = [spout for spout in status.components.values() if spout.kind == "spout"]
        acked = sum(spout.acked for spout in spouts)
        trial = on_trial(status)
        stages = self._stages(workers, up, acked if trial else 0)
        none_acked = acked == 0 and any(spout.failed for spout in spouts)
        arrived = self._arrived(status, workers, up, acked)
        if (not trial or is_suspended(status)) and not none_acked and arrived is not None:
            return Seen("", (*stages, arrived), done=True)
        emitted = sum(component.emitted for component in status.components.values())
        if (reached := (len(workers), up, emitted)) > self._best:
            self._best, self._better = reached, now
        if trial:
            self._trial, self._was_on_trial = now, True
        else:
            trouble = all_fail(status, spouts) if none_acked else self._trouble(status, now)
            if trouble is not None:
                return Seen("", tuple(stages), failure=trouble)
        if not workers and now - self._better < LAG_SECS:
            return Seen("being scheduled", tuple(stages))
        if not workers and now - self._better >= TROUBLE_SECS and "no_slot" not in self._reported:
            self._reported.add("no_slot")
            stages.append(
                f"no slot was free for {TROUBLE_SECS:.0f} s; still waiting (Ctrl-C ends only the wait: the topology stays"
                " submitted)"
            )
        last = next(reversed(status.events), None)
        if last is not None and subject(last) not in self._events:
            self._events.add(subject(last))
            stages.append(own_paths(sentence(last)))
        stages += self._new(outages(status))
        if trial:
            stages += self._on_trial(status, trial, spouts)
        trouble = "" if last is None else repetition(last)
        return Seen(waiting_for(status, len(workers), up, trouble), tuple(stages))

    def _on_trial(self, status: TopologyAnswer, trial: str, spouts: Sequence[ComponentStatus]) -> list[str]:
        """Return what the errors so far mean while the previous version may return (without such a version they would end the
        wait). Return each text only once."""
        texts: dict[str, str] = {}
        if failed_build(status) is not None:
            texts["build"] = shows_build(self._name)
        troubles = status.notes or status.errors or any(spout.failed for spout in spouts)
        if troubles or "no_slot" in self._reported:
            texts["trial"] = trial
        return self._new(texts)

    def _new(self, texts: Mapping[str, str]) -> list[str]:
        """Return the texts whose keys were not reported before."""
        new = [text for key, text in texts.items() if key not in self._reported]
        self._reported.update(texts)
        return new

    def _other(self, status: TopologyAnswer, now: float) -> Seen:
        """Process a status of a different submission: the previous version still has the topology's name, or has it again."""
        if self._taken_over:
            self._back = now if self._back is None else self._back
            if now - self._back < HAND_OVER_SECS and is_handing_over(status, self._id):
                return Seen("rolled back: its pending tuples are being handed to the previous version")
            return Seen("", failure=rolled_back(status, self._id))
        if status.state == "REPLACING":
            self.began = now
            return Seen("waiting for the drain of the previous version")
        if now - self.began < LAG_SECS:
            return Seen("waiting for Nimbus to begin")
        return Seen("", failure=rolled_back(status, self._id))

    def _stages(self, workers: Sequence[WorkerEntry], up: int, acked: int) -> list[str]:
        """Return the stages that were reached since the last status. `acked`: on trial, the acked trees."""
        reached = stages_of(workers, up)
        if acked:
            reached["acked"] = f"first ack: {whole(acked)} acked"
        return self._new(reached)

    def _arrived(
        self, status: TopologyAnswer, workers: Sequence[WorkerEntry], up: int, acked: int
    ) -> str | None:
        """Return how the topology has come up, or None if it has not."""
        if is_suspended(status):
            return None if self.active else f"inactive: {on_trial(status)}"
        passed = "trial passed: " if self._was_on_trial else ""
        if acked:
            return f"{passed or 'first ack: '}{whole(acked)} acked"
        if status.state == "COMPLETED":
            why = had_ended(status.epoch, status.components)
            return f"completed: {why}; {begin_again(self._name)}" if why else "completed"
        if not self.active:  # the components are opened only when the topology is activated
            return f"inactive: {to_type('activate', self._name)} lets it run" if workers else None
        if not 0 < len(workers) == up:
            return None
        if is_untracked(status):
            return f"{passed}{'' if passed else 'first '}tuples executed; none of them is tracked"
        if status.epoch is not None and has_nothing_new(status):
            return f"{passed}goes on from epoch {status.epoch.began}; its spouts have nothing new to emit"
        return f"{passed}its workers are up, and nothing failed" if passed else None

    def _trouble(self, status: TopologyAnswer, now: float) -> str | None:
        """Return why the command should stop waiting, or None."""
        build = failed_build(status)
        if build is not None:
            return f"{sentence(build)}\n{shows_build(self._name)}"
        down = next((each for each in status.components.items() if is_down(each[1])), None)
        self._down = None if down is None else now if self._down is None else self._down
        if down is not None and self._down is not None and now - self._down >= TROUBLE_SECS:
            return (
                f"{own_paths(down_sentence(*down))}, and no tree was acked (the topology continues, and tries again;"
                f" {to_type('errors', self._name)} shows its errors)"
            )
        texts = [*status.errors, *map(sentence, status.events)]
        if texts and now > max(self._better, self._trial) + TROUBLE_SECS:
            return f"no progress for {TROUBLE_SECS:.0f} s; the latest event: {own_paths(str(texts[-1]))}"
        return None


def stages_of(workers: Sequence[WorkerEntry], up: int) -> dict[str, str]:
    """Return the stages that the workers have reached, each with a key."""
    if not workers:
        return {}
    hosts = len({worker.host for worker in workers})
    reached = {"scheduled": f"scheduled: {plural(len(workers), 'worker')} on {plural(hosts, 'host')}"}
    if up == len(workers):
        reached["up"] = f"{plural(up, 'worker')} up"
    return reached


def failure_of(status: TopologyAnswer) -> str | None:
    """Return why a topology in this state will not start, or None."""
    state, name = status.state, status.name
    if state == "FAILED":
        return f"topology {name!r} failed: {own_paths(str(status.error))}"
    if state == "BAD":
        return f"topology {name!r} cannot be read in the store: {status.error}"
    if state == "KILLED":
        return f"topology {name!r} is being killed"
    return None


def is_down(component: ComponentStatus) -> bool:
    """Whether all tasks of a bolt are down: they work for no tuple."""
    return bool(component.down) and len(component.down) == component.tasks


def is_suspended(status: TopologyAnswer) -> bool:
    """Whether a new version is up but INACTIVE, so that its trial begins later."""
    return status.stands_by is not None and status.stands_by.suspended


def outages(status: TopologyAnswer) -> dict[str, str]:
    """Return a sentence for each bolt that is down, or some of its tasks, and for what an epoch waits for, each with a key."""
    down = {name: component for name, component in status.components.items() if component.down}
    found = {
        f"{'down' if is_down(each) else 'partly down'} {name}": own_paths(down_sentence(name, each))
        for name, each in down.items()
    }
    waits = wait_sentences(status.epoch, own_paths)
    return found | {f"waits for {key}": text for key, text in waits.items()}


def failed_build(status: TopologyAnswer) -> Event | None:
    """Return the event of an environment that cannot be built: the command does not wait for another attempt."""
    failed = (event for event in status.events if event.kind == "not_started" and not event.over)
    return next((event for event in failed if event.part == "environment"), None)


def all_fail(status: TopologyAnswer, spouts: Sequence[ComponentStatus]) -> str:
    """Return a sentence saying that no tree was acked, and why, if the reason is known. If a component cannot start, that is
    the reason: all other failures follow from it."""
    name, reports = status.name, status.error_reports
    failed = sum(spout.failed for spout in spouts)
    stopped = sum(undone(spout.failures) for spout in spouts)
    first = next((spout.first_failure for spout in spouts if spout.first_failure), "")
    starts = (report for report in reports if report.call in STARTING)
    report = next(starts, None if first else next(iter(reports), None))
    reason = (
        first if report is None else f"{report.component}[{report.task}]: {raised(report.call, report.text)}"
    )
    outcome = "failed for good" if stopped < failed else "were cut off when workers stopped"
    why = f"; the first: {own_paths(reason)}" if reason == first else f"; the reason: {own_paths(reason)}"
    now = "is completed" if status.state == "COMPLETED" else "continues"
    return (
        f"{plural(failed, 'tree')} of topology {name!r} {outcome} and none was acked{why if reason else ''}"
        f" (the topology {now}; {to_type('errors', name)} shows its errors)"
    )


def shows_build(name: str) -> str:
    return f"{to_type('logs', name, '--file', 'build')} shows the whole output"


def rolled_back(status: TopologyAnswer, topology_id: str) -> str:
    """Return a sentence saying that the version with this id is gone, and why; and lines about its pending tuples. Rollbacks of
    other versions are not mentioned."""
    back = _events_of(status, topology_id, "rolled_back")
    why = f": {own_paths(back[-1].error)}" if back else ""
    text = f"the new version of {status.name!r} was rolled back, the previous version has the name again{why}"
    return "\n".join([text, *map(sentence, _events_of(status, topology_id, "handed_over"))])


def is_handing_over(status: TopologyAnswer, topology_id: str) -> bool:
    """Whether it is not known yet what became of the tuples that were pending in the version with this id."""
    pending = sum(event.count for event in _events_of(status, topology_id, "rolled_back"))
    return sum(event.count for event in _events_of(status, topology_id, "handed_over")) < pending


def _events_of(status: TopologyAnswer, version: str, kind: str) -> list[Event]:
    return [event for event in status.events if event.kind == kind and event.version == version]


def is_untracked(status: TopologyAnswer) -> bool:
    """Whether spouts have emitted only untracked tuples, and bolts, if there are any, have executed some. With a state path all
    are tracked, and acks come with the commit."""
    spouts = [component for component in status.components.values() if component.kind == "spout"]
    bolts = [component for component in status.components.values() if component.kind != "spout"]
    tracked = status.epoch is not None or any(
        spout.acked or spout.failed or spout.pending for spout in spouts
    )
    return (
        not tracked
        and any(spout.emitted for spout in spouts)
        and (not bolts or any(bolt.executed for bolt in bolts))
    )


def has_nothing_new(status: TopologyAnswer) -> bool:
    """Whether a topology has gone on from its state, and all its tasks have passed the end of an epoch in which its spouts had
    nothing to emit, as those that follow a file which has not grown."""
    epoch = status.epoch
    emitted = any(component.emitted for component in status.components.values())
    return epoch is not None and bool(epoch.began) and epoch.quiet and not emitted


def begin_again(name: str) -> str:
    """Return what to do so that a topology reads its input again."""
    return (
        f"to read it again, drop the state ({to_type('state', 'drop', name)}) and submit the topology again"
    )


def waiting_for(status: TopologyAnswer, workers: int, up: int, trouble: str) -> str:
    """Return the thing for which the topology still waits, and the trouble so far."""
    said = f" ({trouble})" if trouble else ""
    if is_suspended(status):
        return f"waiting for the trial to begin: {to_type('activate', status.name)}"
    if not workers:
        return f"waiting for free slots: `squall supervisors` shows what there is{said}"
    if up < workers:
        return f"starting: {up} of {plural(workers, 'worker')} up{busy_with(status)}{said}"
    spouts = [spout for spout in status.components.values() if spout.kind == "spout"]
    if on_trial(status) and any(spout.acked for spout in spouts):
        return f"on trial: {so_far(spouts)}"
    if on_trial(status) and is_untracked(status):
        return "on trial: tuples are executed; none of them is tracked"
    emitted = sum(spout.emitted for spout in spouts)
    if on_trial(status) and status.epoch is not None and emitted:
        return f"on trial: {whole(emitted)} emitted; acks come with the first commit, after the trial"
    down = ", ".join(name for name, component in status.components.items() if is_down(component))
    busy = busy_with(status)
    if not emitted:
        return f"waiting for the first tuple{busy}"
    return f"waiting for the first ack: {whole(emitted)} emitted{f' ({down} is down)' if down else busy}"


def busy_with(status: TopologyAnswer) -> str:
    """Return what the bolts say that they wait for, such as the start of Spark, as a part of a sentence; "" if none says so."""
    said = {name: each.idle for name, each in status.components.items() if each.kind != "spout" and each.idle}
    return "".join(f"; {name}: {own_paths(why)}" for name, why in said.items())


def so_far(spouts: Sequence[ComponentStatus]) -> str:
    """Return how the trees of a version on trial have ended so far."""
    acked, failed, again = (
        sum(getattr(spout, count) for spout in spouts) for count in ("acked", "failed", "replayed")
    )
    said = f"{whole(acked)} acked, {whole(failed)} failed"
    return f"{said}, {whole(again)} tried again" if again else said
