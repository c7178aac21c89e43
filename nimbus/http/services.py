"""What the handlers of requests work with: the parts of a Nimbus, and one request as it was read.

Must not know: Starlette, sockets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from nimbus.counters.counting import Counters
from nimbus.files.stored_files import FileStore
from nimbus.http.auth import Caller
from nimbus.http.errors import NoLeader
from nimbus.http.views import Views
from nimbus.leader.control import LeaderLoop
from nimbus.leader.master import Nimbus
from squall.api.answers import StoreState
from squall.cluster.records import NimbusRecord, SupervisorRecord
from squall.daemon.command_loop import Driver
from squall.http.client import Client

T = TypeVar("T")
Query = TypeVar("Query")
Body = TypeVar("Body")

#: Seconds within which a request is answered, with "unavailable" if need be.
ANSWER_SECS: Final = 4.5
#: Minimum seconds for a command, however long reading its request took.
LEAST_SECS: Final = 1.5


@dataclass(frozen=True)
class ApiCall(Generic[Query, Body]):
    """A request: the names in its path, its query, its body, and who sent it. `began`: when, by the monotonic clock."""

    caller: Caller
    path: Mapping[str, str]
    query: Query
    body: Body
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds left to answer it."""
        return max(LEAST_SECS, ANSWER_SECS - (time.monotonic() - self.began))


@dataclass(frozen=True)
class Services:
    """The parts of one Nimbus that its HTTP uses."""

    me: NimbusRecord
    views: Views
    files: FileStore
    counters: Counters
    control: LeaderLoop
    driver: Driver
    #: The options of this daemon.
    conf: Mapping[str, object]
    #: Makes the client that asks a supervisor for logs.
    ask_supervisor: Callable[[SupervisorRecord], Client]
    store_state: Callable[[], StoreState]
    started: float = field(default_factory=time.monotonic)

    def lead(self, call: ApiCall[Query, Body], command: Callable[[Nimbus], T]) -> T:
        """Run a command on the master, in the control thread."""
        return self.driver.call(lambda: self.control.lead(command), timeout=call.left)

    def leader_url(self) -> str:
        """Return the leader's URL; `NoLeader` when there is none, or when it is this Nimbus, which has not taken over yet."""
        leader = self.views.leader_id()
        if leader is not None and leader != self.me.id:
            for record in self.views.registry.all_nimbuses():
                if record.id == leader and record.url:
                    return record.url
        raise NoLeader("no Nimbus leads at the moment: ask again in a few seconds")

    def healthy(self) -> bool:
        """Return whether this Nimbus can work: the store is connected and the control thread runs."""
        return self.store_state().connected and self.driver.thread.is_alive()
