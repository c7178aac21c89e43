"""The protocol of epochs, as cores without I/O: what makes state count each tuple once.

Theory of operation
===================

A topology with state lives in *epochs*. An epoch ends with a *barrier* that travels on every link behind the tuples that were
sent before it. Each task writes a *snapshot* when the barriers of all its inputs are there. When all snapshots are in the
store, one *commit* record is put into the log: then, and only then, the epoch counts. After a failure all tasks *rewind*:
they return to the last commit, and go on from there as if what came after it had never happened.

The protocol promises: state, timers and emissions are those of a run in which each emission of a rewindable spout was
executed once; what sinks show comes epoch by epoch, each once, the same cut at all of them; each committed emission is acked
once while its spout task lives; each dead letter is shown once. `tests/epochs` holds this protocol against a sequential
model, with kills at every step, two coordinators, slow stores, and frames that are lost, doubled and late; and removes each
guard to see that it is missed.

The rules, and the module that keeps each
-----------------------------------------

**The log decides, nothing else** (`records`, `log`). A record goes to the number after the last one read, if there is none. A
writer that finds the number taken reads on, and leads no longer if it reads another's lead. If the answer is lost, it reads
the number back and compares tokens; if nothing is there, it puts the same record at the same number again, since the first
put may still arrive. Until this is settled it writes nothing else: neither commit, rewind nor end. A coordinator whose
assignment is older than that of an earlier leader does not claim the lead; otherwise two that do not know of each other could
alternate.

**The log is trimmed** (`trimming`). What the first n records say together is put as a floor, then they are removed. A number
that was taken must never look free: a put counts only if no floor is as high when it is stored, and what was read counts only
if no floor has passed it meanwhile.

**Two numbers fence everything.** The *rewind number* is the number of the newest lead or rewind record. Messages, frames,
grants, answers of stores and files carry it: older ones are refused, frames of a newer one wait. *Epoch numbers* are never
used twice, not even for epochs that were never committed: a rewind passes over the one that may have been begun. So an
outside system that names things by epoch cannot mistake a void epoch for a later one, and committed numbers have gaps. At
most one epoch is open beyond the last commit, which is why passing over one is enough.

**The coordinator** (`coordinator`) is a table of phases. It begins the end of an epoch, collects snapshots, commits, and
makes tasks return in two steps: all stop, restore and say so; then all run. It tells tasks only what stands in the log.
`RestoreTask` is therefore the proof for which a sink may abort: the record whose number it carries stands, so later epochs of
smaller numbers are void. An epoch belongs to one assignment: every change is a rewind, a planned one after a last epoch in
which the spouts stop. Completion and the end of a killed topology are a record, too, written after all that is committed is
visible.

**A version on trial commits nothing** (`coordinator`). It ends an epoch and holds the commit back until nothing can roll the
version back any more. So the log still ends with the epoch at which it took over, and a version that returns goes on from that.
To the log a version that returns is a later submission, so that no process of the one that was rolled back leads after it.

**A submission may begin elsewhere** (`starting`, `log`): its first lead names a kept epoch, of this log or of another, whose
snapshots were copied. It counts until the submission's first commit; a lead of another submission before that forgets it. What
components that are gone have left is part of every commit, until an operator's record says that it was deleted.

**The barrier does not wait behind back-pressure** (`participant`, `delivery`). Rows still in outboxes when a task snapshots
are part of its snapshot; the barrier goes out ahead of them, without credit, and to their receiver they are tuples of the
next epoch. A window of credit belongs to a pair of tasks, so that frames held behind one task's barrier never starve its
neighbour.

**Alignment** (`alignment`) decides when something arrives. Behind an input's barrier everything is held until all barriers
are there; an input that has ended counts as having every barrier; a task without inputs that live gets its marker from the
coordinator's message, which all tasks get. Closing edges of cycles are not waited for: what comes over them between the
marker and their own barrier is recorded into the snapshot. Recorded rows are executed again after a rewind, and belong to no
window.

**A link delivers in order only** (`delivery`). What is past a gap waits, the sender keeps everything until it was received,
and a frame that cannot be sent again means a rewind.

**What is shown is shown after the commit** (`after_commit`, `sinks`). Handles of staged sinks, rows of token sinks and dead
letters are part of the snapshot of their epoch and of every later one until the outside has confirmed them: epoch n before
n+1, and before the task says that it is restored. Each can be shown again without effect: a handle's commit is idempotent,
rows are written in one transaction that compares and sets a token, letters have ids. Index i shows what is left by the
indices j with j mod parallelism = i, rows under the token of j. Rows that the outside refuses for good are letters of the epoch
that is open then; with its commit it is decided that they are left out, and only then the others are written.

**A tuple that fails costs no rewind** (`parking`). It waits in its task's state, is tried again there, and is a dead letter
of the epoch in which its last try failed. It counts as emitted and is acked with its epoch.

**Spouts** (`emissions`) are asked for a position between two calls of `next_tuple`. One that cannot rewind keeps its values
until their commit, and they are emitted again before anything new; a snapshot holds those that are still to be emitted again.
So its tuples count once unless its own process dies, and then at most once.

**Nothing that a rewind may need is removed** (`snapshot_files`). Swept is what no kept commit names and no commit can name
any more: its rewind number is smaller than the newest, or it is the newest and a later epoch is committed. A commit names
the newest file of each task, and the epoch of the oldest one upon which that builds: what is between them is kept.

**A snapshot may be a chain of files** (`snapshot_chain`): a whole one, and those after it that hold what had changed. Each
names those before it with their digests. Since barrier n+1 follows commit n, changes always build upon a committed snapshot;
a rewind returns the chain to that of the commit.

**Keys move in groups** (`snapshot_index`, `worker.routing.key_groups`, `worker.loop.rescale`). A group is in the task that
its number, the number of tasks and that of groups say; the last is the same in all commits of a lineage. Files say which groups
they have, and have them in order. A task that begins where their number has changed reads what its groups have, key by key only
where a part has groups of its neighbour, too. Files that name no groups, or other numbers of them, may have any key.

**A task goes on while its snapshot is encoded** (`participant`, `worker.state.saving`). What the snapshot holds is taken at the
marker; its file is written when all parts are encoded, and only then may the epoch be committed. A rewind drops what is
unfinished.

What is around the cores
------------------------

Inputs are method calls, outputs are lists of effects, in the order in which they have to be done. The caller owns stores,
links, user code, inboxes, outboxes and clocks. It must deliver control messages between two living processes in order and
once, must not deliver `RestoreTask` before the worker follows the assignment that it names, and must drop the effects of
calls that were running when a task was stopped. Each task reads its snapshot back: rewinding in memory comes on top of this
and is measured against it.
"""
