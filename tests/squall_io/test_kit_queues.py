"""The kit's spout of queues: what the server learns of each message, whatever happens to the connection and the topology."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from squall_io.kit import queue_task
from squall_io.kit.codecs import CodecAway, UnreadableMessage
from squall_io.kit.queue_client import QueueAway
from squall_io.kit.queue_spout import queue_problems
from tests.squall_io.queues_in_memory import Opened, QueueServer, QueueSpoutTask, opened
from tests.zookeeper_servers import eventually
from topology_api import EmitError, Failure, Replay, SquallError

__all__ = ["opened"]


def test_what_is_acked_is_acknowledged_in_one_call_and_what_failed_is_rejected(opened: Opened) -> None:
    server = QueueServer("a", "b", "c", "d")
    task = opened(server)
    assert task.step() is None
    assert task.values() == ["a", "b", "c", "d"]
    task.ack(0, 2)
    assert server.done == []  # `ack` does not wait for the server
    task.fail(1, "failed", "no\nway")
    task.step()
    assert (server.done, server.dead) == (["a", "c"], [("b", "failed at split[4]: no way")])
    assert server.calls.count("acknowledge") == 1
    assert list(server.sent.values()) == ["d"]


def test_a_message_that_was_cut_off_comes_again_and_one_that_was_handed_over_does_not(opened: Opened) -> None:
    server = QueueServer("a", "b", "c")
    task = opened(server)
    task.step()
    task.fail(0, "stopped")
    task.fail(1, "handed over")
    task.ack(2)
    task.spout.close()
    assert (server.done, server.dead) == (["b", "c"], [])
    assert list(server.ready) == ["a"]


def test_nothing_is_received_beyond_the_messages_in_flight(opened: Opened) -> None:
    server = QueueServer(*"abcde")
    task = opened(server, max_in_flight=2)
    task.step()
    received = server.calls.count("receive")
    assert task.step() == queue_task.WAIT_SECONDS  # it is full, and says when to call again
    assert server.calls.count("receive") == received
    assert task.values() == ["a", "b"]
    assert task.metrics.gauges["messages in flight"]() == 2
    task.ack(1)
    assert task.woken == 1  # it does not wait for the time that it has said
    task.step()
    assert task.values() == ["a", "b", "c"]
    assert server.done == ["b"]


def test_acks_of_a_lost_connection_are_void_though_ids_begin_again(opened: Opened) -> None:
    server = QueueServer("a", "b")
    task = opened(server)
    task.step()
    server.errors["receive"] = [QueueAway("connection reset")]
    wait = task.step()
    assert wait is not None and task.shown.startswith("waiting for the queue in memory")
    assert task.step() == wait  # not before the pause is over
    assert server.calls.count("connect") == 1
    server.ready.rotate(1)  # tag 1 is another message now
    task.step(wait)
    assert task.values() == ["a", "b", "b", "a"]
    assert task.shown == ""
    task.ack(0)
    task.step()
    assert server.done == []
    task.ack(2)
    task.step()
    assert server.done == ["b"]
    assert task.metrics.gauges["messages in flight"]() == 1


def test_an_ack_that_comes_while_the_connection_is_lost_is_void(opened: Opened) -> None:
    """The second thread loses the connection while the first one is in `ack`."""
    server = QueueServer("a")
    task = opened(server)
    task.step()
    server.errors["receive"] = [QueueAway("connection reset")]
    wait = task.step()
    queue = task.spout._task
    assert wait is not None and queue is not None
    queue._settled.append((task.emitted[0][2], None))
    task.step(wait)
    task.step()
    assert server.done == [] and list(server.sent.values()) == ["a"]


def test_acks_wait_for_the_next_connection_of_a_client_that_keeps_ids(opened: Opened) -> None:
    server = QueueServer("a", "b", "c")
    server.keeps_ids = True
    task = opened(server)
    task.step()
    task.ack(0)
    task.fail(1, "timeout")
    server.errors["acknowledge"] = [QueueAway("connection reset")]
    wait = task.step()
    assert wait is not None
    task.ack(2)
    task.step(wait)
    assert (server.done, server.dead) == (["a", "c"], [("b", "timeout at split[4]")])
    assert task.values() == ["a", "b", "c"]


def test_what_the_server_refuses_is_raised_shown_and_tried_again(opened: Opened) -> None:
    server = QueueServer("a")
    server.errors["connect"] = [SquallError("there is no queue 'orders': declare it"), SquallError("again")]
    task = opened(server)
    with pytest.raises(SquallError, match="declare it"):
        task.step()
    assert "declare it" in task.shown
    assert task.step(1.0) == queue_task.RETRY_SECONDS - 1.0
    with pytest.raises(SquallError, match="again"):
        task.step(queue_task.RETRY_SECONDS - 1.0)
    task.step(queue_task.RETRY_SECONDS)
    assert task.values() == ["a"]
    assert task.shown == ""


def test_an_unreadable_message_is_emitted_apart_reported_once_and_rejected(opened: Opened) -> None:
    server = QueueServer("a", "bad 1", "bad 2", "b")
    task = opened(server)
    task.step()
    assert task.emitted[1][:2] == ("unreadable", (b"bad 1", "it is bad"))
    assert [stream for stream, _, _ in task.emitted] == ["default", "unreadable", "unreadable", "default"]
    assert task.metrics.counts["messages left out"] == 2
    with pytest.raises(
        UnreadableMessage, match="a message of the queue in memory cannot be decoded: it is bad"
    ):
        task.step()
    task.ack(0, 1, 3)
    task.fail(2, "failed")
    task.step()
    assert server.done == ["a", "b"]
    assert server.dead == [("bad 1", "unreadable: it is bad"), ("bad 2", "unreadable: it is bad")]


def test_a_codec_of_the_user_that_raises_anything_makes_a_message_unreadable(opened: Opened) -> None:
    server = QueueServer("a", "b")
    server.errors["decode a"] = [ZeroDivisionError("division by zero")]
    task = opened(server)
    task.step()
    assert task.emitted[0][:2] == ("unreadable", (b"a", "ZeroDivisionError: division by zero"))
    assert task.emitted[1][1] == ("b",)


def test_messages_wait_for_what_the_codec_needs(opened: Opened) -> None:
    server = QueueServer("a", "b")
    server.errors["decode b"] = [CodecAway("no registry"), CodecAway("no registry")]
    task = opened(server)
    assert task.step() is not None
    assert "no registry" in task.shown
    assert task.step() is not None
    assert task.values() == ["a"]
    task.step()
    assert task.values() == ["a", "b"]
    assert task.shown == ""


def test_a_message_that_cannot_be_emitted_is_rejected_and_the_next_ones_are_emitted(opened: Opened) -> None:
    server = QueueServer("a", "b", "c")
    task = opened(server)
    task.refuses = lambda values: values == ("b",)
    with pytest.raises(EmitError):
        task.step()
    task.step()
    task.step()
    assert task.values() == ["a", "c"]
    assert server.dead == [("b", "too long")]


def test_a_connection_is_kept_alive_while_the_topology_is_deactivated(opened: Opened) -> None:
    server = QueueServer("a", "b")
    task = opened(server)
    task.step()
    assert task.spout.client.alive == [[]]
    task.spout.deactivate()
    task.stand_by(5.0)
    assert server.calls.count("pause") == 1
    task.ack(0)
    task.stand_by(5.0)
    assert task.spout.client.alive == [[], [2]]
    assert server.done == ["a"]  # `next_tuple` is not called meanwhile
    task.stand_by(9.0)
    assert len(task.spout.client.alive) == 2 and server.calls.count("pause") == 1
    server.ready.append("c")
    task.spout.activate()
    task.step()
    assert task.values() == ["a", "b", "c"]


def test_a_connection_that_is_lost_while_nothing_is_received_is_made_again(opened: Opened) -> None:
    server = QueueServer("a")
    task = opened(server)
    task.step()
    server.errors["keep_alive"] = [QueueAway("heartbeats missed")]
    task.stand_by(10.0)
    wait = task.step()
    assert wait is not None and "heartbeats missed" in task.shown
    task.step(wait)
    assert task.values() == ["a", "a"]


def test_a_client_that_keeps_ids_is_kept_alive_after_an_error_while_nothing_is_received(
    opened: Opened,
) -> None:
    server = QueueServer("a", "b")
    server.keeps_ids = True
    task = opened(server)
    task.step()
    task.spout.deactivate()
    server.errors["keep_alive"] = [QueueAway("throttled")]
    server.errors["connect"] = [QueueAway("throttled")]
    task.stand_by(10.0)
    task.ack(0)
    task.stand_by(0.5)  # connects in vain
    assert server.done == []
    task.stand_by(0.5)
    assert server.calls.count("connect") == 2, "not again at once"
    task.stand_by(queue_task.RETRY_SECONDS)
    assert server.done == ["a"]
    assert task.spout.client.alive[-1] == [2]


def test_what_was_acked_while_the_server_was_away_is_acknowledged_at_the_end(opened: Opened) -> None:
    server = QueueServer("a")
    server.keeps_ids = True
    task = opened(server)
    task.step()
    server.errors["keep_alive"] = [QueueAway("reset")]
    task.stand_by(10.0)
    task.ack(0)
    task.spout.close()
    assert server.done == ["a"]


def test_an_id_of_an_earlier_process_is_void(opened: Opened) -> None:
    """An epoch that is brought back acks what an earlier process has emitted, whose tags begin like those of this one."""
    first = opened(QueueServer("a"))
    first.step()
    server = QueueServer("b")
    second = opened(server)
    second.step()
    second.spout.ack(first.emitted[0][2])
    second.stand_by(10.0)
    assert server.done == []
    second.ack(0)
    second.stand_by(1.0)
    assert server.done == ["b"]


def test_the_second_thread_leaves_the_client_to_the_first_one_and_outlives_errors(opened: Opened) -> None:
    server = QueueServer("a")
    task = opened(server)
    task.stand_by(10.0)
    assert server.calls == []  # there is no connection
    task.step()
    server.errors["keep_alive"] = [ValueError("a bug")]
    task.stand_by(10.0)
    with pytest.raises(SquallError, match="the queue in memory: ValueError: a bug"):
        task.step()
    queue = task.spout._task
    assert queue is not None
    with queue._lock:
        before = list(server.calls)
        task.stand_by(20.0)
        assert server.calls == before


def test_acks_leave_without_a_call_of_the_spout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_task, "LOOK_SECONDS", 0.001)
    server = QueueServer("a")
    task = QueueSpoutTask(server)
    task.step()
    task.ack(0)
    eventually(lambda: server.done == ["a"], 30.0)
    thread = next(each for each in threading.enumerate() if each.name == "orders-queue")
    task.spout.close()
    assert not thread.is_alive()


def test_the_gauge_of_waiting_messages_is_what_the_server_has_said_last(opened: Opened) -> None:
    server = QueueServer("a", "b", "c")
    task = opened(server, max_in_flight=1)
    gauge = task.metrics.gauges["messages waiting"]
    assert gauge() == 0
    task.step()
    assert gauge() == 3  # it was asked before it was read
    task.step(queue_task.MEASURE_SECONDS)
    assert gauge() == 2


def test_what_the_server_has_learned_is_not_said_again(opened: Opened) -> None:
    server = QueueServer("a", "b", "c")
    server.keeps_ids = True
    task = opened(server)
    task.step()
    task.fail(0, "failed", "x")
    task.fail(1, "failed", "y")
    task.ack(2)
    server.errors["reject"] = [QueueAway("reset")]
    wait = task.step()
    assert wait is not None and (server.done, server.dead) == (["c"], [])
    task.step(wait)
    assert (server.done, [message for message, _ in server.dead]) == (["c"], ["a", "b"])


def test_over_any_order_of_events_each_message_is_done_or_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was acked in vain comes again; what was rejected or acknowledged never does."""
    monkeypatch.setattr(queue_task, "LOOK_SECONDS", 3600.0)
    for seed in range(150):
        chance = random.Random(seed)
        every = [f"m{number}" for number in range(12)]
        server = QueueServer(*every)
        server.keeps_ids = seed % 2 == 0
        task = QueueSpoutTask(server, max_in_flight=chance.randint(1, 5))
        open_ones: list[Any] = []
        acked: set[str] = set()
        for _ in range(60):
            what = chance.choice(("step", "step", "ack", "ack", "lose", "stand by", "fail"))
            if what == "step":
                before = len(task.emitted)
                task.step(0.5)
                open_ones += [(values[0], message_id) for _, values, message_id in task.emitted[before:]]
            elif what == "stand by":
                task.stand_by(0.5)
            elif what == "lose":
                call = chance.choice(("receive", "acknowledge", "reject", "connect", "keep_alive"))
                server.errors.setdefault(call, []).append(QueueAway("reset"))
            elif open_ones:
                message, message_id = open_ones.pop(chance.randrange(len(open_ones)))
                acked.add(message)
                if what == "ack":
                    task.spout.ack(message_id)
                else:
                    task.spout.fail(message_id, Failure("failed", "split", 4, None))
            at_server = [*server.done, *(message for message, _ in server.dead)]
            assert sorted([*at_server, *server.ready, *server.sent.values()]) == sorted(every), seed
            assert set(at_server) <= acked, seed
        server.errors.clear()
        task.spout.close()


@pytest.mark.parametrize("value", [0, 65_536, True, "many", 1.5])
def test_a_number_in_flight_that_is_none_is_refused(value: object) -> None:
    assert "max_in_flight is" in next(queue_problems(value, None))
    assert list(queue_problems(1, Replay())) == []
