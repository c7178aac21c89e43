"""Values that cannot travel between the workers of one state: each costs its own tuple, and all others count once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from squall.transport.frames import Unsent
from tests.local_cluster.words_with_state import Pass, expected
from tests.worker.network_of_workers import InMemory
from tests.worker.test_epochs_over_links import counts_of, net_of, problems_of, run
from topology_api import Fields, Tuple
from worker.loop.epoch_worker import EpochWorker
from worker.tracking.dead_letters import MemoryLetters


class Odd:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("odd")


class Spoiled:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return spoil, ()


def spoil() -> None:
    raise RuntimeError("spoiled")


class Sends(Pass):
    outputs = Fields("word", "number", "extra")

    def __init__(self, extra: type) -> None:
        super().__init__()
        self.extra = extra

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["word"], tup["number"], self.extra() if tup["number"] == 77 else None))


def without_77(total: int) -> dict[str, tuple[int, int]]:
    return {
        word: (2 * times, 2 * sum_)
        for word, (times, sum_, *_) in expected([each for each in range(total) if each != 77]).items()
    }


def test_a_value_that_cannot_be_read_is_a_letter_of_its_receiver_and_the_rest_counts(tmp_path: Path) -> None:
    """Its neighbours in the same batch count, too; and so it is after a failure."""
    letters = MemoryLetters()
    net = net_of(tmp_path, InMemory(), between=Sends(Spoiled))

    def keep_letters() -> None:
        for node in net.nodes.values():
            node.worker.environment.letters = lambda task: letters

    net.start()
    keep_letters()
    net.run(0.4)
    net.kill("c")
    net.restart("c")
    keep_letters()
    net.run(
        20,
        lambda: bool(problems_of(net)) or (len(letters.letters) == 2 and counts_of(net) == without_77(300)),
    )
    assert problems_of(net) == []
    net.run(2)
    assert counts_of(net) == without_77(300) and len(letters.letters) == 2
    for letter in letters.letters.values():
        assert (letter.component, letter.source, letter.stream) == ("count", "pass", "default")
        assert letter.fields == ("word", "number", "extra")
        assert letter.values == ("w0", 77, "<cannot be read: RuntimeError: spoiled>")
        assert "field 'extra' could not be read: RuntimeError: spoiled" in letter.why_no_values
        assert "RuntimeError: spoiled" in (letter.failure.error or "")


@pytest.mark.parametrize("codec", ["pickle", pytest.param("msgpack", marks=pytest.mark.soak)])
def test_a_value_that_cannot_travel_is_a_letter_of_its_producer_and_the_rest_counts(
    tmp_path: Path, codec: str
) -> None:
    """Also where pickle could carry it, and the topology's codec cannot; and after a failure."""
    letters = MemoryLetters()
    extra = Odd if codec == "pickle" else object
    conf = {"topology.transport.codec": codec}
    net = net_of(tmp_path, InMemory(), between=Sends(extra), conf=conf)

    def keep_letters() -> None:
        for node in net.nodes.values():
            node.worker.environment.letters = lambda task: letters

    net.start()
    keep_letters()
    net.run(0.4)
    net.kill("c")
    net.restart("c")
    keep_letters()
    assert net.run(
        20,
        lambda: bool(problems_of(net)) or (len(letters.letters) == 2 and counts_of(net) == without_77(300)),
    )
    assert problems_of(net) == []
    net.run(2)
    assert counts_of(net) == without_77(300) and len(letters.letters) == 2
    for letter in letters.letters.values():
        assert (letter.component, letter.source, letter.values[:2]) == ("pass", "pass", ("w0", 77))
        assert "extra" in letter.why_no_values
        assert "never sent" in (letter.failure.error or "")


def test_a_tuple_that_turns_out_too_late_not_to_travel_brings_a_rewind(tmp_path: Path) -> None:
    """Its epoch may be committed already, so a letter of a later epoch could be lost, and the tuple with it."""
    net = net_of(tmp_path, InMemory())
    net.start()
    net.run(1)
    worker = net.nodes["b"].worker
    assert isinstance(worker, EpochWorker)
    [task, *_] = worker.tasks.values()
    [source] = [each.source for each in task.emitter.boxes()][:1]
    before, passed = worker.epochs.rewind, worker.epochs.passed[task.id]
    count = next(row.task for row in net.tasks if row.component == "count")
    late = Unsent(
        "pass", task.id, ("w0", 1), "odd", -1, count, source=source, rewind=before, epoch=passed - 1
    )
    worker.epochs.unsent(structs.replace(late, rewind=before - 1))  # of before the last rewind: void
    net.run(0.1)
    assert worker.epochs.rewind == before
    worker.epochs.unsent(late)
    run(net, 20, 300)
    assert worker.epochs.rewind > before
    assert not any(participant.parking.letters for participant in worker.epochs.participants.values())
