"""Misuse of emit and ack is reported clearly and loses nothing; prepare and cleanup allow what the documents say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.local_cluster.gathering import GATHERED, WAYS, Gather, Gathered, Rows, gathered, run
from topology_api import Bolt, Context, EmitError, Fields, Spout, Stream, TopologyBuilder, Tuple

__all__ = ["gathered"]


class Passes(Bolt):
    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values)


class Misuses(Bolt):
    """Makes one mistake per tuple, named by its value; emits the text of the error, unanchored."""

    outputs = {"default": Fields("text"), "straight": Stream(Fields("a"), direct=True)}
    auto_ack = False

    old: Tuple

    def execute(self, tup: Tuple) -> None:
        try:
            getattr(self, tup["value"])(tup)
            text = "no error"
        except EmitError as error:
            text = str(error)
        self.emit((f"{tup['value']}: {text}",), anchors=())
        if tup["value"] not in ("emit_after_ack", "ack_twice", "emit_after_fail", "anchor_to_old"):
            self.ack(tup)

    def emit_after_ack(self, tup: Tuple) -> None:
        self.ack(tup)
        self.old = tup
        self.emit(("late",))

    def emit_after_fail(self, tup: Tuple) -> None:
        self.fail(tup)
        self.emit(("late",))

    def anchor_to_old(self, tup: Tuple) -> None:
        try:
            self.emit(("late",), anchors=[tup, self.old])
        finally:
            self.ack(tup)

    def ack_twice(self, tup: Tuple) -> None:
        self.ack(tup)
        self.ack(tup)

    def ack_nothing(self, tup: Tuple) -> None:
        self.ack(tup.values)  # type: ignore[arg-type]

    def anchor_to_values(self, tup: Tuple) -> None:
        self.emit(("late",), anchors=["a tuple"])  # type: ignore[list-item]

    def too_many_values(self, tup: Tuple) -> None:
        self.emit(("a", "b"))

    def no_values(self, tup: Tuple) -> None:
        self.emit(())

    def a_string(self, tup: Tuple) -> None:
        self.emit("word")

    def a_number(self, tup: Tuple) -> None:
        self.emit(5)  # type: ignore[arg-type]

    def unknown_stream(self, tup: Tuple) -> None:
        self.emit(("late",), stream="nowhere")

    def dead_letter_stream(self, tup: Tuple) -> None:
        self.emit(("a", "b", "c", "d"), stream="__dead_letters")

    def anchor_to_a_number(self, tup: Tuple) -> None:
        self.emit(("late",), anchors=5)  # type: ignore[arg-type]

    def a_stream_that_is_no_name(self, tup: Tuple) -> None:
        self.emit(("late",), stream=["default"])  # type: ignore[arg-type]

    def not_direct(self, tup: Tuple) -> None:
        self.emit_direct(1, ("late",))


#: Each mistake, with the text of its error.
MISTAKES = {
    "emit_after_ack": "cannot anchor to <Tuple rows[1] default: value='emit_after_ack'>: it was acked or failed already",
    "emit_after_fail": "it was acked or failed already",
    "anchor_to_old": "value='emit_after_ack'>: it was acked or failed already",
    "ack_twice": "cannot ack <Tuple rows[1] default: value='ack_twice'>: it was acked or failed already",
    "ack_nothing": "cannot ack ('ack_nothing',): it is not a tuple that execute() got",
    "anchor_to_values": "anchors= takes tuples that execute() got, not 'a tuple'",
    "anchor_to_a_number": "anchors= takes a tuple that execute() got, or several, not 5",
    "a_stream_that_is_no_name": "no output stream ['default'] is declared",
    "too_many_values": "stream 'default' has 1 field(s) (text), but 2 value(s) were emitted: ('a', 'b')",
    "no_values": "stream 'default' has 1 field(s) (text), but 0 value(s) were emitted: ()",
    "a_string": "one value is written (value,)",
    "a_number": "emit() takes a tuple or list of values, not int 5",
    "unknown_stream": "no output stream 'nowhere' is declared; its streams are: 'default', 'straight'",
    "dead_letter_stream": "no output stream '__dead_letters' is declared",
    "not_direct": "stream 'default' is not a direct stream",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_mistake_is_an_emit_error_with_a_clear_message_and_emits_nothing(
    way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("misuse")
    builder.set_spout("rows", Rows([(mistake,) for mistake in MISTAKES]))
    builder.set_bolt("misuses", Misuses()).shuffle_grouping("rows")
    builder.set_bolt("gather", Gather()).shuffle_grouping("misuses")
    status = run(builder.build(), **way)
    texts = dict(row[0].split(": ", 1) for _, row in gathered["gather"])
    for mistake, says in MISTAKES.items():
        assert says in texts.pop(mistake), mistake
    assert texts == {}
    assert [number for number, _ in gathered["rows failed"]] == [list(MISTAKES).index("emit_after_fail")]
    assert len(gathered["rows acked"]) == len(MISTAKES) - 1
    assert status.components["misuses"].errors == 0
    assert status.components["misuses"].emitted == len(MISTAKES)


class EmitsFromThread(Bolt):
    """Has another thread emit, ack and fail; emits the texts of their errors."""

    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        texts: list[str] = []

        def serve() -> None:
            calls: list[Callable[[], None]] = [
                lambda: self.emit(("lost",)),
                lambda: self.emit(("lost",), anchors=tup),
                lambda: self.ack(tup),
                lambda: self.fail(tup),
                lambda: self.reset_timeout(tup),
            ]
            for call in calls:
                try:
                    call()
                except EmitError as error:
                    texts.append(str(error))

        thread = threading.Thread(target=serve)
        thread.start()
        thread.join()
        for text in texts:
            self.emit((text,))


class EmitsFromThreadOfItsOwn(EmitsFromThread):
    threaded = True


@pytest.mark.parametrize("simulated", [True, False])
@pytest.mark.parametrize("bolt", [EmitsFromThread, EmitsFromThreadOfItsOwn])
def test_emitting_from_another_thread_is_an_error_and_nothing_is_lost(
    bolt: type[EmitsFromThread], simulated: bool, gathered: Gathered
) -> None:
    builder = TopologyBuilder("threads")
    builder.set_spout("rows", Rows([(number,) for number in range(10)]))
    builder.set_bolt("threads", bolt()).shuffle_grouping("rows")
    builder.set_bolt("gather", Gather()).shuffle_grouping("threads")
    run(builder.build(), simulated=simulated)
    texts = [row[0] for _, row in gathered["gather"]]
    assert len(texts) == 50
    assert all("'threads'" in text and "from another thread" in text for text in texts)
    assert sorted(gathered["rows acked"]) == list(range(10))


class SpoutThread(Spout):
    """Has a thread of its own that tries to emit; then emits the text of the error."""

    outputs = Fields("value")

    def next_tuple(self) -> None:
        texts: list[str] = []

        def serve() -> None:
            calls: list[Callable[[], None]] = [lambda: self.emit(("lost",), message_id=1), self.finish]
            for call in calls:
                try:
                    call()
                except EmitError as error:
                    texts.append(str(error))

        thread = threading.Thread(target=serve)
        thread.start()
        thread.join()
        for text in texts:
            self.emit((text,), message_id=text)
        self.finish()

    def ack(self, message_id: object) -> None:
        GATHERED.add("acked", message_id)


def test_a_spout_that_emits_from_another_thread_gets_advice(gathered: Gathered) -> None:
    builder = TopologyBuilder("threads")
    builder.set_spout("rows", SpoutThread())
    builder.set_bolt("gather", Gather()).shuffle_grouping("rows")
    status = run(builder.build(), simulated=False)
    texts = [row[0] for _, row in gathered["gather"]]
    assert len(texts) == 2 and sorted(gathered["acked"]) == sorted(texts)
    assert all("'rows'" in text and "context.wake()" in text for text in texts)
    assert status.components["rows"].emitted == 2


class EmitsInCleanup(Gather):
    """Emits in cleanup, which is too late."""

    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        pass

    def cleanup(self) -> None:
        self.emit(("late",))


@pytest.mark.parametrize("simulated", [True, False])
def test_emissions_in_cleanup_are_reported_and_not_delivered(simulated: bool, gathered: Gathered) -> None:
    builder = TopologyBuilder("cleanup")
    builder.set_spout("rows", Rows([("a",)]))
    builder.set_bolt("cleans", EmitsInCleanup()).shuffle_grouping("rows")
    builder.set_bolt("gather", Gather()).shuffle_grouping("cleans")
    status = run(builder.build(), simulated=simulated)
    assert status.state == "COMPLETED"
    assert gathered["gather"] == [] and gathered["rows acked"] == [0]
    [report] = status.errors
    assert (report.component, report.call) == ("cleans", "cleanup")
    assert "cannot emit: its cleanup() is running or has run" in report.text
    assert "test_misuse.py" in report.place


class EmitsInPrepare(Gather):
    """Emits before its first tuple."""

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.emit(("early", context.index))


@pytest.mark.parametrize("way", WAYS)
def test_emissions_in_prepare_arrive_whichever_worker_starts_first(
    way: dict[str, Any], gathered: Gathered
) -> None:
    builder = TopologyBuilder("early")
    builder.set_bolt("gather", Gather(), parallelism=2).all_grouping("early")
    builder.set_bolt("early", EmitsInPrepare(("value", "index")), parallelism=3).shuffle_grouping("rows")
    builder.set_spout("rows", Rows([("a", 9)], ("value", "index")))
    run(builder.build(), **way)
    rows = sorted(row for _, row in gathered["gather"])
    assert rows == sorted([("early", 0), ("early", 1), ("early", 2), ("a", 9)] * 2)
    assert gathered["rows acked"] == [0]


def test_wrong_arity_in_a_bolt_without_a_handler_fails_the_tuple(gathered: Gathered) -> None:
    builder = TopologyBuilder("arity")
    builder.set_spout("rows", Rows([(1, 2), (3, 4)], ("a", "b")))
    builder.set_bolt("passes", Passes()).shuffle_grouping("rows")
    builder.set_bolt("gather", Gather()).shuffle_grouping("passes")
    status = run(builder.build())
    assert status.components["rows"].failed == 2 and status.components["passes"].errors == 2
    [(_, failure), _] = gathered["rows failed"]
    assert "stream 'default' has 1 field(s) (value), but 2 value(s)" in failure.error
    assert "test_misuse.py" in failure.error
