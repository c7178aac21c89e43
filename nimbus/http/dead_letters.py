"""The handlers of dead letters: which hosts hold them, pages of them, sending them again and dropping them.

The letters lie with the supervisors, beyond the life of their topology. Each request but the first is about one supervisor, so
that a command can name the host that does not answer. Nimbus passes letters on, and never decodes their values.
Must not know: Starlette, where supervisors keep letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins

from nimbus.http.views import NoSuchPart, Views
from nimbus.placement.resending import (
    PassingReason,
    Recipient,
    of_bolt,
    problem_at_bolt,
    problem_with,
    recipient_of,
    spout_tasks,
)
from squall.api import letters
from squall.cluster.blobs import BadBlob
from squall.cluster.records import BadRecord, Placement, TopologyRecord
from squall.http.client import Client, at
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from nimbus.http.handlers import ApiCall, Services

S = TypeVar("S", bound=Struct)

#: Seconds that a supervisor has for an answer: each change is written to its disk.
CHANGE_SECS: Final = 20.0
#: Why a letter is not sent again that another request has moved meanwhile, or that has expired.
GONE: Final = "it is not there any more"


def letter_hosts(services: Services, call: ApiCall[None, None]) -> tuple[int, letters.LetterHostsAnswer]:
    name = call.path["name"]
    return 200, letters.LetterHostsAnswer(name, hosts_of(services.views, name))


def hosts_of(views: Views, name: str) -> list[letters.LetterHost]:
    """Return every host that can be asked, since its letters may not be counted yet, and those that are away and had some."""
    registered = {each.id: each.host for each in views.registry.all_supervisors() if each.url}
    held = {each.supervisor: each for each in views.registry.all_letters(views.now())}
    found = [
        letters.LetterHost(id, host, held[id].topologies.get(name, 0) if id in held else 0, False)
        for id, host in registered.items()
    ]
    found += [
        letters.LetterHost(id, each.host, each.topologies[name], True)
        for id, each in held.items()
        if id not in registered and name in each.topologies
    ]
    return sorted(found, key=lambda each: (each.host, each.supervisor))


def dead_letters(
    services: Services, call: ApiCall[letters.LetterQuery, None]
) -> tuple[int, letters.LetterPage]:
    query = call.query
    with asked(services, call.path) as ask:
        page = letters.PageRequest(query.after, [query.id] if query.id else None, query.values == "yes")
        return 200, ask(letters.LetterPage, "page", page)


def drop_letters(
    services: Services, call: ApiCall[None, letters.LetterIdsRequest]
) -> tuple[int, letters.DroppedAnswer]:
    with asked(services, call.path) as ask:
        return 200, ask(letters.DroppedAnswer, "drop", call.body)


def resend_letters(
    services: Services, call: ApiCall[None, letters.LetterIdsRequest]
) -> tuple[int, letters.ResentAnswer]:
    name, holder = call.path["name"], call.path["supervisor"]
    with asked(services, call.path) as ask:
        return 200, sent_again(services, ask, name, holder, call.body.ids)


def sent_again(
    services: Services, ask: Ask, name: str, holder: str, ids: Sequence[str]
) -> letters.ResentAnswer:
    """Hand letters to tasks that emit them. `ask`: asks their holder, a supervisor."""
    views = services.views
    record = views.registry.topologies.readable(name)
    placements = _placements(views, record)
    described = _described(views, record)
    sent: list[str] = []
    unsent: list[letters.UnsentLetter] = []
    by_task: dict[Recipient, list[str]] = {}
    found = _found(ask, ids)
    missing = [id for id in ids if id not in {each.id for each in found}]
    unsent += [letters.UnsentLetter(id, GONE, True) for id in missing]
    reachable = {each.id for each in views.registry.all_supervisors() if each.url}
    for number, letter in enumerate(found):
        tasks = spout_tasks(record, name, letter.component, placements)
        if at_bolt := of_bolt(letter, described):
            tasks = tasks.only(letter.task)
        problem = (
            problem_at_bolt(letter, described)
            if at_bolt
            else problem_with(letter, described.get(letter.component))
        )
        why = tasks.why or problem
        chosen = why or recipient_of(letter, number, holder, tasks, reachable)
        if isinstance(chosen, Recipient):
            by_task.setdefault(chosen, []).append(letter.id)
        else:
            unsent.append(letters.UnsentLetter(letter.id, chosen, isinstance(chosen, PassingReason)))
    for recipient, own in by_task.items():
        if recipient.supervisor == holder:
            done = ask(letters.LetterIdsRequest, "resend", letters.HandOverRequest(own, recipient.task)).ids
            sent += done
            unsent += [letters.UnsentLetter(id, GONE, True) for id in own if id not in done]
            continue
        try:
            for id in own:
                _move(services, ask, {"name": name, "supervisor": recipient.supervisor}, id, recipient.task)
                sent.append(id)
        except SquallError as error:
            unsent += [letters.UnsentLetter(id, str(error), True) for id in own if id not in sent]
    return letters.ResentAnswer(sent, unsent)


def _move(services: Services, ask: Ask, to: Mapping[str, str], id: str, task: int) -> None:
    """Hand a letter to a task of another host. After a failure between the steps it is on both hosts, and may be sent twice."""
    kept = ask(letters.KeptAnswer, "kept", letters.KeptRequest(id))
    with asked(services, to) as ask_other:
        ask_other(letters.LetterIdsRequest, "accept", letters.AcceptRequest(kept.file, task))
    ask(letters.DroppedAnswer, "drop", letters.LetterIdsRequest([id]))


def _found(ask: Ask, ids: Sequence[str]) -> list[letters.LetterEntry]:
    """Return the letters with these ids, without their values."""
    found: dict[str, letters.LetterEntry] = {}
    after: str | None = ""
    while after is not None:
        page = ask(letters.LetterPage, "page", letters.PageRequest(after, list(ids), values=False))
        found.update({each.id: each for each in page.letters})
        after = page.next
    return list(found.values())


class Ask:
    """Sends requests about one topology's letters to one supervisor."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name

    def __call__(self, kind: type[S], action: str, request: Struct) -> S:
        path = f"/{at('letters', self._name, action)}"
        answer = self._client.post(path, to_builtins(request), repeatable=True, timeout=CHANGE_SECS)
        try:
            return convert(answer, kind)
        except ValidationError as error:
            raise SquallError(
                f"the answer about the dead letters of {self._name} cannot be read: {error}"
            ) from None


@contextmanager
def asked(services: Services, path: Mapping[str, str]) -> Iterator[Ask]:
    """Connect to the supervisor that a path names."""
    record = services.views.supervisor(path["supervisor"])
    if not record.url:
        raise NoSuchPart(f"supervisor {record.id} on {record.host} keeps no dead letters")
    with closing(services.ask_supervisor(record)) as client:
        yield Ask(client, path["name"])


def _placements(views: Views, record: TopologyRecord | None) -> Sequence[Placement]:
    """Return the workers that a topology has now."""
    assignment = None if record is None else views.registry.assignments.last_readable(record.id)
    return () if assignment is None else assignment.placements


def _described(views: Views, record: TopologyRecord | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the components of a topology, by id; none if its description cannot be read."""
    try:
        return {} if record is None else views.components(record.id)
    except (BadBlob, BadRecord):
        return {}
