"""Whether a submitted topology has come up: scheduled, workers up, first tree acked. Values in, words out.

`Arrival` is shown one status after the other, as Nimbus gives it, and says each time how far it is, and at last that it
runs or why it does not.
Must not know: HTTP, terminals, who waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from squall.error_reports import STARTING
from squall.said import said_key
from squall.status import CANNOT_BUILD, ROLLED_BACK
from squall_cli.figures import plural, whole
from squall_cli.next_command import to_type
from squall_cli.placed import LAG_SECS, LEAVING, on_trial
from squall_cli.said import again, own_paths

#: Something was said about its workers (one died, say), and for so many seconds nothing got any better.
TROUBLE_SECS: Final = 30.0
#: Seconds that the workers of a version that failed have to be gone, before the one that it replaced has the name again.
ROLLBACK_SECS: Final = 20.0


@dataclass(frozen=True)
class Seen:
    """What one status says. `stage`: what has been reached, for a line of its own; `now`: what is waited for."""

    now: str
    stages: tuple[str, ...] = ()
    done: bool = False
    failure: str | None = None


class Arrival:
    """The coming up of one submission. While the version that it `replaces` stands by, Nimbus judges its troubles: it is up, or
    is rolled back."""

    def __init__(
        self,
        name: str,
        topology_id: str,
        active: bool = True,
        began: float = 0.0,
        replaces: bool = False,
    ) -> None:
        self._name = name
        self._id = topology_id
        self._active = active
        self._began = began
        self._better = began  # when something got better last
        self._trial = began  # when it was on trial last
        self._best = (0, 0, 0)
        self._told: set[str] = set()
        self._taken_over = False
        self._said: set[str] = set()
        self._replaces = replaces
        self._failed: float | None = None  # since when it is seen as FAILED

    def missing(self, now: float) -> Seen:
        """Nimbus knows no topology of this name."""
        if not self._taken_over and now - self._began < LAG_SECS:
            return Seen("waiting for Nimbus to list it")
        return Seen("", failure=f"topology {self._name!r} is not there any more: somebody has killed it")

    def look(self, status: Mapping[str, Any], now: float) -> Seen:
        """What a status of the topology of this name says."""
        if status.get("id") != self._id:
            return self._other(status, now)
        if not self._taken_over:
            self._taken_over = True
            self._better = now
        failure = failure_of(status)
        if failure is not None:
            self._failed = now if self._failed is None else self._failed
            if self._replaces and status["state"] == "FAILED" and now - self._failed < ROLLBACK_SECS:
                return Seen("it failed: waiting for the version before")
            return Seen("", failure=failure)
        workers = [each for each in status["workers"] if each["state"] not in LEAVING]
        up = sum(bool(worker["opened"]) for worker in workers)
        stages = self._stages(workers, up)
        spouts = [each for each in status["components"].values() if each["kind"] == "spout"]
        acked = sum(each["acked"] for each in spouts)
        trial = on_trial(status)
        if not trial and self._has_come_up(status, workers, up, acked):
            return Seen("", (*stages, self._arrived(status, acked)), done=True)
        self._note_progress(now, up, len(workers), status)
        if trial:
            self._trial = now
        else:
            trouble = self._trouble(status, now)
            if acked == 0 and any(each["failed"] for each in spouts):
                trouble = all_fail(status["name"], spouts, status.get("errors") or ())
            if trouble is not None:
                return Seen("", tuple(stages), failure=trouble)
        if not workers and now - self._better < LAG_SECS:
            return Seen("being scheduled", tuple(stages))
        if not workers and now - self._better >= TROUBLE_SECS and "no slot" not in self._told:
            self._told.add("no slot")
            stages.append(
                f"no slot was free for {TROUBLE_SECS:.0f} s; one is waited for further, and Ctrl-C leaves it submitted"
            )
        last = str((status.get("notes") or ("",))[-1])
        stages += self._new_note(last)
        if trial:
            stages += self._on_trial(status, trial, spouts)
        return Seen(waiting_for(status, len(workers), up, again(last)), tuple(stages))

    def _on_trial(
        self, status: Mapping[str, Any], trial: str, spouts: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        """What a trouble means that would end the waiting without a version before: said once, when there is any."""
        told: dict[str, str] = {}
        if any(CANNOT_BUILD in str(note) for note in status.get("notes") or ()):
            told["build"] = shows_build(self._name)
        troubles = status.get("notes") or status.get("errors") or any(each["failed"] for each in spouts)
        if troubles or "no slot" in self._told:
            told["trial"] = trial
        new = [text for what, text in told.items() if what not in self._told]
        self._told.update(told)
        return new

    def _new_note(self, note: str) -> list[str]:
        """What was said last, in full when it is said for the first time."""
        key = said_key(note)
        if not note or key in self._said:
            return []
        self._said.add(key)
        return [own_paths(note)]

    def _other(self, status: Mapping[str, Any], now: float) -> Seen:
        """The name is another submission's: the one that is to be replaced has it yet, or again."""
        if self._taken_over:
            return Seen("", failure=rolled_back(status, self._id))
        if status["state"] == "REPLACING":
            self._began = now
            return Seen("waiting for the drain of the version before")
        if now - self._began < LAG_SECS:
            return Seen("waiting for Nimbus to begin")
        return Seen("", failure=rolled_back(status, self._id))

    def _stages(self, workers: Sequence[Mapping[str, Any]], up: int) -> list[str]:
        """What has been reached and was not told yet."""
        reached: dict[str, str] = {}
        if workers:
            hosts = len({worker["host"] for worker in workers})
            reached["scheduled"] = f"scheduled: {plural(len(workers), 'worker')} on {plural(hosts, 'host')}"
            if up == len(workers):
                reached["up"] = f"{plural(up, 'worker')} up"
        new = [text for stage, text in reached.items() if stage not in self._told]
        self._told.update(reached)
        return new

    def _has_come_up(
        self, status: Mapping[str, Any], workers: Sequence[Mapping[str, Any]], up: int, acked: int
    ) -> bool:
        if status["state"] == "COMPLETED" or acked:
            return True
        if not self._active:
            return bool(workers)  # its components are opened when it is activated
        return 0 < len(workers) == up and is_untracked(status["components"])

    def _arrived(self, status: Mapping[str, Any], acked: int) -> str:
        if acked:
            return f"first ack: {whole(acked)} acked"
        if status["state"] == "COMPLETED":
            return "completed"
        if not self._active:
            return f"inactive: {to_type('activate', self._name)} lets it run"
        return "first tuples executed; none of them is tracked"

    def _note_progress(self, now: float, up: int, workers: int, status: Mapping[str, Any]) -> None:
        emitted = sum(each["emitted"] for each in status["components"].values())
        reached = workers, up, emitted
        if reached > self._best:
            self._best, self._better = reached, now

    def _trouble(self, status: Mapping[str, Any], now: float) -> str | None:
        """Why it is not waited for any longer, or None."""
        notes = [str(note) for note in status.get("notes", ())]
        built = next((note for note in reversed(notes) if CANNOT_BUILD in note), None)
        if built is not None:
            return f"{built}\n{shows_build(self._name)}"
        errors = list(status.get("errors") or ())
        if (notes or errors) and now > max(self._better, self._trial) + TROUBLE_SECS:
            last = notes[-1] if notes else str(errors[-1])
            return (
                f"nothing got any further for {TROUBLE_SECS:.0f} s; the last that was said: {own_paths(last)}"
            )
        return None


def failure_of(status: Mapping[str, Any]) -> str | None:
    """Why a topology will not come up, by its state; or None."""
    state, name = status["state"], status["name"]
    if state == "FAILED":
        return f"topology {name!r} failed: {own_paths(str(status['error']))}"
    if state == "BAD":
        return f"topology {name!r} cannot be read in the store: {status['error']}"
    if state == "KILLED":
        return f"topology {name!r} is being killed"
    return None


def all_fail(name: str, spouts: Sequence[Mapping[str, Any]], errors: Sequence[str]) -> str:
    """That no tree was acked, and why as far as it is known: a component that cannot start is the reason of all the rest."""
    failed = sum(each["failed"] for each in spouts)
    stopped = sum(each.get("failures", {}).get("stopped", 0) for each in spouts)
    first = next((str(each["first_failure"]) for each in spouts if each.get("first_failure")), "")
    heads = [error.partition("\n")[0].replace(f" of topology {name!r}:", ":") for error in errors]
    starts = (head for head in heads if any(f": {call}() raised " in head for call in STARTING))
    reason = next(starts, first or next(iter(heads), ""))
    told = "failed for good" if stopped < failed else "were cut off when workers stopped"
    why = f"; the first: {own_paths(reason)}" if reason == first else f"; the reason: {own_paths(reason)}"
    return (
        f"{plural(failed, 'tree')} of topology {name!r} {told} and none was acked{why if reason else ''}"
        f" (it goes on: {to_type('errors', name)})"
    )


def shows_build(name: str) -> str:
    return f"{to_type('logs', name, '--file', 'build')} shows all of it"


def rolled_back(status: Mapping[str, Any], topology_id: str) -> str:
    """That the version of this id is gone, and why: an earlier one may have been rolled back as well."""
    begins = f"the version {topology_id} {ROLLED_BACK}"
    notes = [str(note) for note in status.get("notes") or () if str(note).startswith(begins)]
    why = f": {own_paths(notes[-1].partition(': ')[2])}" if notes else ""
    return f"the new version of {status['name']!r} did not come up, the one before has the name again{why}"


def is_untracked(components: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether spouts have emitted without anything being tracked, and bolts (if there are any) have executed."""
    spouts = [each for each in components.values() if each["kind"] == "spout"]
    bolts = [each for each in components.values() if each["kind"] != "spout"]
    tracked = any(each["acked"] or each["failed"] or each["pending"] for each in spouts)
    return (
        not tracked
        and any(each["emitted"] for each in spouts)
        and (not bolts or any(each["executed"] for each in bolts))
    )


def waiting_for(status: Mapping[str, Any], workers: int, up: int, trouble: str) -> str:
    """What is still missing, in a few words, and how often that was in vain so far."""
    said = f" ({trouble})" if trouble else ""
    if not workers:
        return f"waiting for free slots: `squall supervisors` shows what there is{said}"
    if up < workers:
        return f"starting: {up} of {plural(workers, 'worker')} up{said}"
    emitted = sum(each["emitted"] for each in status["components"].values() if each["kind"] == "spout")
    return (
        f"waiting for the first ack: {whole(emitted)} emitted" if emitted else "waiting for the first tuple"
    )
