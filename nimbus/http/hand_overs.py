"""Hands the tuples that were pending at a rollback to the version that has the name again, in a thread of the leader.

The workers of the version that was rolled back left them as dead letters that name their heir. While the heir has the name,
its tasks get them as by `squall dead-letters NAME resend`. What a task has got does not wait any more, so no step is repeated
after a death of Nimbus. What cannot be sent at the moment is tried again; what does not fit the heir becomes an ordinary dead
letter. An event says what was handed over, and what is kept, and why.
Must not know: files of letters, values.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nimbus.http.dead_letters import Ask, asked, sent_again
from nimbus.lifecycle.states import RUNNING
from squall.api import letters
from squall.cluster.records import TopologyRecord
from squall.cluster.registry import name_of
from squall.reports.events import Event
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from nimbus.http.handlers import Services

_log = logging.getLogger(__name__)

#: Seconds between two looks at the records of letters.
EVERY: Final = 2.0
#: Seconds within which the control thread notes an event.
NOTE_SECS: Final = 10.0

#: The version that was rolled back, the spout, and why its letters were kept; "": they were handed over.
Outcome = tuple[str, str, str]


@dataclass(eq=False, repr=False)
class HandOvers:
    """The thread. It does nothing while its Nimbus does not lead."""

    services: Services
    _closing: threading.Event = field(default_factory=threading.Event, init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="squall-nimbus-hand-overs", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Hand over no more; the next leader continues."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _serve(self) -> None:
        while not self._closing.wait(EVERY):
            try:
                if self.services.control.leading:
                    self.round()
            except SquallError as error:
                _log.debug("pending tuples cannot be handed over at the moment: %s", error)
            except Exception:  # this thread must continue
                _log.exception("an error in handing over pending tuples; it continues")

    def round(self) -> None:
        """Hand over what can be handed over now. Raises `SquallError` if the store does not answer."""
        registry = self.services.views.registry
        outcomes: dict[str, Counter[Outcome]] = {}
        for held in registry.all_letters(self.services.views.now()):
            for heir in held.heirs:
                record = registry.topologies.readable(name_of(heir))
                if record is None or record.id != heir or record.state not in RUNNING:
                    continue  # it does not have its name again yet, or any more
                try:
                    self._from_host(held.supervisor, record, outcomes.setdefault(heir, Counter()))
                except SquallError as error:  # of this host, which may be away; the others continue
                    _log.debug("pending tuples on %s wait for %s: %s", held.host, heir, error)
        for heir, counts in outcomes.items():
            self._note(heir, counts)

    def _from_host(self, supervisor: str, heir: TopologyRecord, counts: Counter[Outcome]) -> None:
        """Hand over the letters of one host; count what became of them."""
        if not self.services.views.components(heir.id):
            return
        with asked(self.services, {"name": heir.name, "supervisor": supervisor}) as ask:
            for part in _waiting(ask, heir.id):
                of = {each.id: (each.topology_id, each.component) for each in part}
                answer = sent_again(self.services, ask, heir.name, supervisor, list(of))
                counts.update((*of[id], "") for id in answer.sent)
                kept: dict[str, list[str]] = {}
                for each in answer.unsent:
                    if not each.passes:
                        kept.setdefault(each.why, []).append(each.id)
                for why, ids in kept.items():
                    ask(letters.LetterIdsRequest, "disinherit", letters.DisinheritRequest(ids, why))
                    counts.update((*of[id], why) for id in ids)
                if self._closing.is_set():
                    return

    def _note(self, heir: str, counts: Counter[Outcome]) -> None:
        name = name_of(heir)
        events = [
            Event("handed_over", topology=name, version=version, successor=heir, component=component,
                  count=count, error=why)
            for (version, component, why), count in sorted(counts.items())
        ]  # fmt: skip
        if events:
            services = self.services
            services.driver.call(
                lambda: services.control.lead(lambda nimbus: nimbus.add_events(name, heir, events)),
                timeout=NOTE_SECS,
            )


def _waiting(ask: Ask, heir: str) -> Iterator[Sequence[letters.LetterEntry]]:
    """Yield the letters of a host that wait for this version, as many at a time as one request may have."""
    found: list[letters.LetterEntry] = []
    after: str | None = ""
    while after is not None:
        page = ask(letters.LetterPage, "page", letters.PageRequest(after, values=False))
        found += [each for each in page.letters if each.heir == heir and each.sent_to is None]
        after = page.next
    for first in range(0, len(found), letters.MOST_IDS):
        yield found[first : first + letters.MOST_IDS]
