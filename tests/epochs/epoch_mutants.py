"""The guards of the epochs' protocol, each removed in turn: the simulation must miss every one of them.

A mutant replaces one method for as long as `mutated` lasts. Its name says what then happens.
Must not know: how runs are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.epochs import epoch_mutants_of_log as of_log
from tests.epochs import epoch_mutants_of_memory as of_memory
from tests.epochs import epoch_mutants_of_refusals as of_refusals
from tests.epochs import epoch_mutants_of_tasks as of_tasks
from tests.epochs.epoch_rescale import NewNumbers
from tests.epochs.epoch_stores import Outside
from tests.epochs.epoch_tasks import SimulatedTask
from worker.epochs import in_memory, trimming
from worker.epochs.after_commit import AfterCommit
from worker.epochs.alignment import Alignment
from worker.epochs.coordinator import Coordinator
from worker.epochs.cycle_bound import CycleBound
from worker.epochs.delivery import ReceivingSide
from worker.epochs.emissions import Emissions
from worker.epochs.in_memory import InMemory
from worker.epochs.log import LogView, LogWriter
from worker.epochs.parking import Parking
from worker.epochs.participant import Participant
from worker.epochs.sinks import Showing
from worker.epochs.snapshot_chain import SnapshotChain
from worker.epochs.snapshot_files import SweepFiles
from worker.loop import rescale
from worker.routing.key_groups import GroupRange
from worker.state.history import StateHistory

#: Class or module, name of a method or function, and what makes the mutant's one of it.
Patch = tuple[Any, str, Callable[[Any], Any]]

#: Name -> what is replaced.
MUTANTS: Final[dict[str, Patch]] = {
    "a lost answer counts as stored": (LogWriter, "put_answered", of_log.no_read_back),
    "a lost answer counts as not stored": (Coordinator, "put_answered", of_log.lost_is_failed),
    "the token of a record is not compared": (LogWriter, "records_read", of_log.token_not_compared_in_log),
    "who lost the lead leads on": (LogView, "add", of_log.leads_on),
    "a record is put over another": (Outside, "put", of_log.put_over),
    "tasks return before the record stands": (Coordinator, "rewind", of_log.restore_early),
    "a commit does not wait for all snapshots": (Coordinator, "may_commit", of_log.commit_half),
    "tasks run before all have returned": (Coordinator, "may_resume", of_log.resume_half),
    "the coordinator hears other rewind numbers": (Coordinator, "message", of_log.any_rewind),
    "an outdated coordinator leads": (LogWriter, "is_outdated", of_log.not_outdated),
    "completed before the commit": (Coordinator, "snapshot_written", of_log.completed_uncommitted),
    "a rewind forgets the acks of its commit": (Participant, "restore", of_tasks.no_acks_in_rewind),
    "completed before all is visible": (Coordinator, "end_if_done", of_log.completed_early),
    "a task that needs a commit does not ask": (Participant, "needs_commit", of_tasks.constant([])),
    "a task that needs a commit asks once": (Participant, "end_epoch", of_tasks.asks_once),
    "an epoch that is asked for ends at once": (Coordinator, "message", of_log.ends_when_asked),
    "a cycle that has drained does not say so": (CycleBound, "changed", of_tasks.never_drained),
    "letters of other epochs belong to the open one": (Alignment, "epoch_of_next", of_tasks.constant(None)),
    "letters behind the marker are not in the snapshot": (Parking, "close_late", of_tasks.constant([])),
    "the next barrier before the commit": (Coordinator, "snapshot_written", of_log.next_before_commit),
    "a version on trial commits": (Coordinator, "commit", of_log.never_on_trial),
    "an epoch number is used again": (LogView, "begin_rewind", of_log.number_again),
    "what may still be committed is swept": (SweepFiles, "may_remove", of_log.sweep_more),
    "what a kept snapshot builds upon is swept": (Coordinator, "sweep", of_log.keep_no_chains),
    "a snapshot is written before it is encoded": (Participant, "write_if_whole", of_tasks.half_encoded),
    "changes are on top of void ones": (SnapshotChain, "restore", of_tasks.chain_goes_on),
    "the newest commit is swept": (Coordinator, "sweep", of_log.keep_less),
    "frames from before a rewind are executed": (Participant, "admit", of_tasks.admit_all),
    "a deposed coordinator is followed": (Participant, "message", of_tasks.older_restore),
    "a snapshot from before a rewind counts": (Participant, "snapshot_written", of_tasks.late_answers),
    "a handle from before a rewind counts": (Participant, "prepared", of_tasks.late_handles),
    "the barrier behind the outbox": (SimulatedTask, "send_barrier", of_tasks.barrier_behind),
    "outboxes not in the snapshot": (Participant, "end_epoch", of_tasks.without("outboxes")),
    "held tuples not in the snapshot": (Participant, "end_epoch", of_tasks.without("held")),
    "ended inputs as of later": (Participant, "end_epoch", of_tasks.snapshot_late),
    "parked tuples not in the snapshot": (Parking, "content", of_tasks.constant([])),
    "acks at the barrier": (Participant, "end_epoch", of_tasks.acks_at_barrier),
    "acks again": (Emissions, "commit", of_tasks.acks_twice),
    "acks of void epochs": (Emissions, "rewind", of_tasks.acks_of_void),
    "values of a spout that cannot rewind are lost": (Emissions, "rewind", of_tasks.no_again),
    "values of a spout that cannot rewind come twice": (Participant, "snapshots_read", of_tasks.again_twice),
    "held frames are released early": (Alignment, "arrive", of_tasks.released_early),
    "the first barrier is enough": (Alignment, "let_in", of_tasks.first_barrier),
    "an ended input is waited for": (Alignment, "let_in", of_tasks.ended_waits),
    "closing edges are not recorded": (Alignment, "arrive", of_tasks.not_recorded),
    "doubled frames count twice": (ReceivingSide, "arrive", of_tasks.doubles),
    "gaps are stepped over": (ReceivingSide, "arrive", of_tasks.steps_over),
    "dead letters before the commit": (Parking, "close", of_tasks.letters_at_once),
    "dead letters survive a rewind": (Parking, "restore", of_tasks.open_letters_stay),
    "outcomes before the commit": (AfterCommit, "add", of_tasks.shown_early),
    "handles are not carried on": (AfterCommit, "restore", of_tasks.dropped_handles),
    "outcomes are dropped by a rewind": (AfterCommit, "restore", of_tasks.restored_before_shown),
    "a lost confirmation counts": (Showing, "answered", of_tasks.forgotten_at_once),
    "the token is not compared": (Outside, "write", of_tasks.token_not_compared),
    "refused rows are left out at once": (AfterCommit, "next", of_refusals.left_out_at_once),
    "refused rows are left out before the commit": (AfterCommit, "close", of_refusals.left_out_uncommitted),
    "a snapshot leaves out what was refused later": (
        Participant,
        "write_if_whole",
        of_refusals.left_out_too_early,
    ),
    "refused rows are left out after a rewind": (AfterCommit, "restore", of_refusals.left_out_for_good),
    "completed with refused rows": (Participant, "show", of_refusals.applied_with_refused),
    "completed after a rewind with refused rows": (
        Participant,
        "restored_if_shown",
        of_refusals.restored_with_refused,
    ),
    "killed with refused rows": (Coordinator, "message", of_refusals.no_commit_after_the_last),
    "an heir uses its own token": (Showing, "step", of_tasks.own_token),
    "committed handles are aborted": (AfterCommit, "void", of_tasks.abort_committed),
    "epochs are shown in any order": (AfterCommit, "next", of_tasks.shown_in_any_order),
    "indices that are gone are forgotten": (NewNumbers, "inherits", of_tasks.only_own_index),
    "a task reads its own file only": (rescale, "files_for", of_tasks.own_file),
    "groups at the edge are not read": (GroupRange, "meets", of_tasks.groups_at_the_edge),
    "groups at the edge are not divided": (GroupRange, "covers", of_tasks.edges_not_divided),
    "keys go to other tasks than their rows": (NewNumbers, "owns", of_tasks.any_owner),
    "rows on their way keep their index": (SimulatedTask, "moved", of_tasks.on_their_way),
    "changes are on top of another task's": (NewNumbers, "share", of_tasks.chain_of_another),
    "a task whose share has changed returns in memory": (in_memory, "keeps_share", of_tasks.constant(True)),
    "a return in memory keeps the names of tasks": (InMemory, "is_outdated", of_memory.as_it_was),
    "a return goes to the newest snapshot": (InMemory, "back_to", of_memory.newest_held),
    "a return in memory forgets a file of the chain": (InMemory, "back_to", of_memory.without_link),
    "a return undoes the last epoch alone": (StateHistory, "return_to", of_memory.newest_changes_only),
    "a return leaves what is void": (StateHistory, "return_to", of_memory.void_changes_stay),
    "a return stops at a later marker": (StateHistory, "return_to", of_memory.later_value_wins),
}

#: Those of trimming, which `log_simulation` misses.
LOG_MUTANTS: Final[dict[str, Patch]] = {
    "a number that was trimmed looks free": (trimming, "put_record", of_log.floors_not_looked_at),
    "a reader knows no floors": (trimming, "read_log", of_log.floors_unknown),
    "a reader does not look at the floors again": (trimming, "is_outrun", of_log.not_outrun),
    "records are removed before their floor stands": (trimming, "trim_log", of_log.removed_first),
    "the record after the floor is removed": (trimming, "trim_log", of_log.removes_too_much),
    "a floor lacks the commits": (LogView, "floor_here", of_log.not_in_floor(commits=[])),
    "a floor lacks the number of the next epoch": (LogView, "floor_here", of_log.not_in_floor(next_epoch=1)),
    "a floor lacks the rewind number": (LogView, "floor_here", of_log.not_in_floor(rewind=1)),
    "a floor lacks the leader": (LogView, "floor_here", of_log.not_in_floor(leader="")),
    "a floor lacks the assignment": (LogView, "floor_here", of_log.not_in_floor(assignment=0)),
    "who led for a moment leads again": (LogWriter, "has_led", of_log.did_not_lead),
}

#: Mutants that a few seeds find: these are tried in the fast tests.
QUICK: Final = frozenset(
    {
        "a commit does not wait for all snapshots",
        "a cycle that has drained does not say so",
        "a return goes to the newest snapshot",
        "a return in memory forgets a file of the chain",
        "a return leaves what is void",
        "a return stops at a later marker",
        "a return undoes the last epoch alone",
        "a lost answer counts as not stored",
        "a lost answer counts as stored",
        "a record is put over another",
        "a task reads its own file only",
        "a task whose share has changed returns in memory",
        "a snapshot is written before it is encoded",
        "acks again",
        "acks at the barrier",
        "a task that needs a commit asks once",
        "a task that needs a commit does not ask",
        "acks of void epochs",
        "an epoch that is asked for ends at once",
        "an ended input is waited for",
        "changes are on top of another task's",
        "changes are on top of void ones",
        "committed handles are aborted",
        "completed before all is visible",
        "completed before the commit",
        "completed with refused rows",
        "dead letters before the commit",
        "doubled frames count twice",
        "groups at the edge are not divided",
        "groups at the edge are not read",
        "ended inputs as of later",
        "held frames are released early",
        "held tuples not in the snapshot",
        "keys go to other tasks than their rows",
        "killed with refused rows",
        "letters behind the marker are not in the snapshot",
        "letters of other epochs belong to the open one",
        "outboxes not in the snapshot",
        "outcomes are dropped by a rewind",
        "outcomes before the commit",
        "parked tuples not in the snapshot",
        "refused rows are left out at once",
        "refused rows are left out before the commit",
        "rows on their way keep their index",
        "tasks run before all have returned",
        "the barrier behind the outbox",
        "the next barrier before the commit",
        "what a kept snapshot builds upon is swept",
        "who lost the lead leads on",
    }
)


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Remove a guard for a while."""
    owner, method, make = (MUTANTS | LOG_MUTANTS)[name]
    old = vars(owner)[method]
    setattr(owner, method, make(old))
    try:
        yield
    finally:
        setattr(owner, method, old)
