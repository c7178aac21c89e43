"""A worker that may use only certain ports takes two free ones of them, and reports it if there are none."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from squall.transport.carriers.sockets import Sockets, WorkerCannotListen
from tests.port_ranges import free_range


@pytest.fixture
def made() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(made: ExitStack, within: range, ports: tuple[int, int] = (0, 0)) -> Sockets:
    sockets = Sockets(None, ports=ports, within=within)
    made.callback(sockets.close)
    return sockets


def test_workers_take_ports_of_the_range_and_skip_those_in_use(made: ExitStack) -> None:
    allowed = free_range(5)
    made.enter_context(socket.create_server(("127.0.0.1", allowed[1])))
    first, second = listening(made, allowed), listening(made, allowed)
    assert {*first.ports, *second.ports} == set(allowed) - {allowed[1]}


def test_too_few_ports_are_reported_with_the_option_and_the_number_needed(made: ExitStack) -> None:
    allowed = free_range(3)
    listening(made, allowed)
    ports = f"supervisor.worker.ports ({allowed[0]}-{allowed[-1]})"
    said = f"no free port on '127.0.0.1': all of {ports} are taken, and a worker needs two"
    with pytest.raises(WorkerCannotListen, match=re.escape(said)):
        listening(made, allowed)


def test_the_ports_of_the_previous_process_are_used_again_where_they_are_allowed(made: ExitStack) -> None:
    allowed, others = free_range(6), (free_range(1)[0], 0)
    assert listening(made, allowed, (allowed[4], allowed[5])).ports == (allowed[4], allowed[5])
    assert set(listening(made, allowed, others).ports) <= set(allowed)


def test_an_address_of_another_machine_is_reported_at_once_not_for_each_port(made: ExitStack) -> None:
    with pytest.raises(
        WorkerCannotListen, match=r"cannot listen on '192\.0\.2\.1'.*Name an address of this machine"
    ):
        Sockets(None, bind="192.0.2.1", within=range(20_000, 20_100))
