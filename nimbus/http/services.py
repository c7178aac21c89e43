"""What the handlers of requests work with: the parts of a Nimbus, and one request as it was read.

Must not know: Starlette, sockets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from nimbus.control import Control
from nimbus.counting import Counters
from nimbus.files import FileStore
from nimbus.http.errors import NoLeader
from nimbus.http.gate import Caller
from nimbus.master import Nimbus
from nimbus.views import Views
from squall.cluster.records import NimbusRecord, SupervisorRecord
from squall.http_client import Client
from squall.rounds import Driver

T = TypeVar("T")

#: Seconds within which a request is answered, by "unavailable" if need be.
ANSWER_SECS: Final = 4.5
#: Seconds that a command has at least, however long its request took until then.
LEAST_SECS: Final = 1.5


@dataclass(frozen=True)
class Call:
    """A request: what its path, its query and its body say, and who asks."""

    caller: Caller
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left for it."""
        return max(LEAST_SECS, ANSWER_SECS - (time.monotonic() - self.began))


@dataclass(frozen=True)
class Desk:
    """One Nimbus, as its HTTP sees it."""

    me: NimbusRecord
    views: Views
    files: FileStore
    counters: Counters
    control: Control
    driver: Driver
    #: The settings of this daemon.
    conf: Mapping[str, object]
    #: Makes the client that asks a supervisor for logs.
    ask_supervisor: Callable[[SupervisorRecord], Client]
    #: What is known of the store: its kind, and whether it is connected.
    store_state: Callable[[], Mapping[str, object]]
    started: float = field(default_factory=time.monotonic)

    def lead(self, call: Call, command: Callable[[Nimbus], T]) -> T:
        """Have the control thread run a command with the master."""
        return self.driver.call(lambda: self.control.lead(command), timeout=call.left)

    @property
    def uptime_secs(self) -> float:
        """Seconds since this daemon was started."""
        return time.monotonic() - self.started

    def leader_url(self) -> str:
        """Where the leader answers; `NoLeader` when there is none, or it is this Nimbus, which is only about to lead."""
        leader = self.views.leader_id()
        if leader is not None and leader != self.me.id:
            for record in self.views.nimbuses():
                if record.id == leader and record.url:
                    return record.url
        raise NoLeader("no Nimbus leads at the moment: ask again in a few seconds")

    def connected(self) -> bool:
        """Whether the store answers, as far as is known."""
        return bool(self.store_state()["connected"])

    def healthy(self) -> bool:
        """Whether this Nimbus can do its work."""
        return self.connected() and self.driver.thread.is_alive()
