"""What a spout gives up becomes a dead letter first, in memory or, with processes, on the disk; `stopped` tuples do not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall.dead_letters.contents import KeptLetter
from squall.dead_letters.folder import LetterFolder
from squall.dead_letters.letter import DeadLetter
from tests.zookeeper_servers import eventually
from topology_api import (
    BatchBolt,
    Bolt,
    Context,
    FailTuple,
    Failure,
    Fields,
    Replay,
    Spout,
    Topology,
    TopologyBuilder,
    Tuple,
)
from worker.tracking import dead_letters

POISON = 3


class Numbers(Spout):
    outputs = Fields("number", "text")
    replay: Replay | None = Replay(max_attempts=2, first_delay=0.01)

    def __init__(self, last: int = 5) -> None:
        self.last = last

    def open(self, context: Context) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        if self.number == self.last:
            return self.finish()
        self.number += 1
        self.emit((self.number, f"text {self.number}"), message_id=f"id {self.number}")


class Plain(Bolt):
    def execute(self, tup: Tuple) -> None:
        if tup["number"] == POISON:
            raise ValueError("poison")


class InThread(Plain):
    threaded = True


class Awaits(Bolt):
    async def execute(self, tup: Tuple) -> None:
        if tup["number"] == POISON:
            raise ValueError("poison")


class Rich(Bolt):
    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        self.fail(tup) if tup["number"] == POISON else self.ack(tup)


class Batches(BatchBolt):
    batch_size = 2
    batch_interval = 0.01

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            if tup["number"] == POISON:
                self.fail(tup, FailTuple("poison"))


def poisoned(bolt: Bolt, replay: Replay | None = Numbers.replay, last: int = 5) -> Topology:
    spout = Numbers(last)
    spout.replay = replay
    builder = TopologyBuilder("poisoned")
    builder.set_spout("numbers", spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("numbers")
    return builder.build()


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(simulated_time=True) as made:
        yield made


def checked(letter: DeadLetter, attempts: int = 2) -> None:
    assert (letter.component, letter.stream, letter.message_id) == ("numbers", "default", "'id 3'")
    assert (letter.fields, letter.values, letter.as_text) == (("number", "text"), (3, "text 3"), ())
    assert (letter.attempts, letter.failure.reason, letter.failure.component) == (attempts, "failed", "bolt")
    assert letter.given_up_at >= letter.emitted_at


@pytest.mark.parametrize(
    "bolt", [Plain(), InThread(), Awaits(), Rich(), Batches()], ids=lambda bolt: type(bolt).__name__
)
@pytest.mark.parametrize("wait", ["give-up", "wait"])
def test_a_tuple_without_attempts_left_is_kept_with_its_values_and_failure(
    cluster: LocalCluster, bolt: Bolt, wait: str
) -> None:
    cluster.submit(poisoned(bolt), {"topology.on.outage": wait})
    cluster.advance(60)
    assert cluster.status("poisoned").state == "COMPLETED"
    (letter,) = cluster.dead_letters("poisoned")
    checked(letter, 1 if isinstance(bolt, Batches) and wait == "wait" and letter.attempts == 1 else 2)
    assert cluster.dead_letters("other") == []


class Refuses(Bolt):
    def execute(self, tup: Tuple) -> None:
        raise FailTuple("refused")


def test_in_one_process_the_first_letters_are_kept_and_all_are_counted(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MOST_IN_MEMORY", 3)
    cluster.submit(poisoned(Refuses()))
    cluster.advance(60)
    assert cluster.status("poisoned").components["numbers"].failed == 5
    assert len(cluster.dead_letters("poisoned")) == 3


def test_without_replays_and_when_a_topology_is_stopped_nothing_is_kept(cluster: LocalCluster) -> None:
    class Holds(Bolt):
        auto_ack = False

        def execute(self, tup: Tuple) -> None:
            pass

    cluster.submit(poisoned(Plain(), replay=None))
    cluster.advance(60)
    assert cluster.status("poisoned").components["numbers"].failed == 1
    cluster.kill("poisoned")
    cluster.advance(60)
    cluster.submit(poisoned(Holds()))
    cluster.advance(1)
    cluster.kill("poisoned", wait_secs=0)
    cluster.advance(60)
    assert cluster.dead_letters("poisoned") == []


class KillsItself(Numbers):
    """Dies in `fail`, the first time."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.marker = f"{context.conf['test.folder']}/died"

    def fail(self, message_id: object, failure: Failure) -> None:
        if not os.path.exists(self.marker):
            open(self.marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_letter_is_on_the_disk_before_fail_is_called(tmp_path: Path) -> None:
    builder = TopologyBuilder("poisoned", {"test.folder": str(tmp_path), "topology.on.outage": "give-up"})
    builder.set_spout("numbers", KillsItself())
    builder.set_bolt("bolt", Plain()).shuffle_grouping("numbers")
    with LocalCluster(processes=True) as cluster:
        cluster.submit(builder.build())
        eventually(lambda: len(cluster.dead_letters("poisoned")) == 2)  # one of each process
        for letter in cluster.dead_letters("poisoned"):
            checked(letter)
            assert letter.expires_at is not None and letter.expires_at > letter.given_up_at


class Listens(Numbers):
    """Goes on after its last number, and writes down its final calls."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.notes = f"{context.conf['test.folder']}/final-calls"

    def next_tuple(self) -> None:
        if self.number < self.last:
            super().next_tuple()

    def note(self, text: str) -> None:
        with open(self.notes, "a") as file:
            file.write(f"{text}\n")

    def ack(self, message_id: object) -> None:
        self.note(f"ack {message_id}")

    def fail(self, message_id: object, failure: Failure) -> None:
        self.note(f"fail {message_id}")


class Mended(Bolt):
    """Refuses the poison until a file is there."""

    def prepare(self, context: Context) -> None:
        self.mended = f"{context.conf['test.folder']}/mended"

    def execute(self, tup: Tuple) -> None:
        if tup["number"] == POISON and not os.path.exists(self.mended):
            raise ValueError("poison")


@pytest.mark.slow
def test_a_letter_is_sent_again_without_final_calls_until_it_is_acked(tmp_path: Path) -> None:
    builder = TopologyBuilder("poisoned", {"test.folder": str(tmp_path), "topology.on.outage": "give-up"})
    builder.set_spout("numbers", Listens())
    builder.set_bolt("bolt", Mended()).shuffle_grouping("numbers")
    with LocalCluster(processes=True) as cluster:
        cluster.submit(builder.build())
        eventually(lambda: cluster.dead_letters("poisoned"))
        folder = LetterFolder(next(Path(cluster._engine.state).glob("*/letters/poisoned")))  # type: ignore[union-attr]

        def send_again() -> DeadLetter:
            (file,) = folder.files()
            (kept,) = folder.read(file.name)[0]
            with folder.locked():
                folder.add_resend(kept.letter.task, kept)
                folder.remove(file.name)
            return kept.letter

        first = send_again()
        again = eventually(lambda: cluster.dead_letters("poisoned"))[0]
        assert (again.id, again.attempts, again.resent) == (first.id, 4, 1)
        eventually(lambda: not folder.resends())  # removed once the letter is among the others
        (tmp_path / "mended").touch()
        send_again()
        eventually(lambda: not folder.resends())
        assert folder.files() == []
        eventually(lambda: cluster.status("poisoned").components["numbers"].acked == 5)
        ends = (tmp_path / "final-calls").read_text().splitlines()
        assert sorted(ends) == ["ack id 1", "ack id 2", "ack id 4", "ack id 5", "fail id 3"]


@pytest.mark.slow
def test_a_letter_that_fits_no_stream_any_more_returns_with_the_reason(tmp_path: Path) -> None:
    builder = TopologyBuilder("poisoned", {"test.folder": str(tmp_path), "topology.on.outage": "give-up"})
    builder.set_spout("numbers", Listens())
    builder.set_bolt("bolt", Mended()).shuffle_grouping("numbers")
    with LocalCluster(processes=True) as cluster:
        cluster.submit(builder.build())
        eventually(lambda: cluster.dead_letters("poisoned"))
        folder = LetterFolder(next(Path(cluster._engine.state).glob("*/letters/poisoned")))  # type: ignore[union-attr]
        (file,) = folder.files()
        (kept,) = folder.read(file.name)[0]
        for changed, why in (
            (replace(kept.letter, component="b"), "task 1 belongs to numbers now, and not to b"),
            (replace(kept.letter, stream="other"), "numbers has no stream 'other' any more"),
            (
                replace(kept.letter, fields=("number",)),
                "the fields of stream 'default' are now (number, text)",
            ),
            (replace(kept.letter, codec="", why_no_values="too large"), "too large"),
        ):
            folder.add_resend(kept.letter.task, KeptLetter(changed, kept.body))
            eventually(lambda: any(why in each.note for each in cluster.dead_letters("poisoned")))  # noqa: B023
            with folder.locked():  # the worker is done with it
                assert folder.resends() == []
                for left in folder.files():
                    folder.remove(left.name)
