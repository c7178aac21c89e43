"""`squall dead-letters NAME ACTION`: the tuples that a topology's tasks gave up: list, show, export, send again, drop.

An action applies to the letters that were there when it began.
Must not know: HTTP, where supervisors keep letters.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from squall_cli.cluster.cluster_client import ClusterOptions, Command, cluster_options, echo_json
from squall_cli.cluster.events import own_paths
from squall_cli.cluster.letter_reader import HeldLetter, LetterReader
from squall_cli.commands import completion
from squall_cli.options.kinds import files
from squall_cli.terminal.formats import cropped_inside, moment, plural
from squall_cli.terminal.lines import Line, echo, harmless, write_lines
from squall_cli.terminal.tables import TableColumn, show, table_of
from topology_api.errors import SquallError
from topology_api.wording import listed

if TYPE_CHECKING:
    from squall.api.letters import LetterEntry

_WIDEST_REASON: Final = 80
#: The ids of letters.
ID: Final = re.compile("[0-9a-f]{4,32}")


COLUMNS: Final[tuple[TableColumn[HeldLetter], ...]] = (
    TableColumn("ID", lambda each: each.letter.id),
    TableColumn("HOST", lambda each: each.host.host, elastic=True, rank=2),
    TableColumn("COMPONENT", lambda each: each.letter.component, elastic=True),
    TableColumn("TASK", lambda each: str(each.letter.task), number=True, rank=3),
    TableColumn("STREAM", lambda each: each.letter.stream, elastic=True, rank=4),
    TableColumn("GIVEN UP", lambda each: moment(each.letter.given_up_at), rank=1),
    TableColumn("ATTEMPTS", lambda each: str(each.letter.attempts), number=True, rank=2),
    TableColumn("RESENT", lambda each: str(each.letter.resent), number=True, rank=3),
    TableColumn("ACKED", lambda each: "yes" if each.letter.acked else "", rank=5),
    TableColumn("REASON", lambda each: cropped_inside(reason_of(each.letter), _WIDEST_REASON), elastic=True),
)


def reason_of(letter: LetterEntry) -> str:
    """Return why a tuple was given up, or what has become of the letter since."""
    failure = letter.failure
    where = "" if failure.component is None else f" in {failure.component}"
    text = f"{failure.reason}{where}{f': {own_paths(failure.error)}' if failure.error else ''}"
    if letter.sent_to is not None:
        return f"being sent again by task {letter.sent_to}; {text}"
    return f"not sent again: {letter.note}; {text}" if letter.note else text


@click.group("dead-letters")
@completion.name_argument
@click.pass_context
def dead_letters(ctx: click.Context, name: str) -> None:
    """Show the tuples that a topology's spouts and bolts gave up; send them again, or drop them.

    A dead letter stays on the host whose task gave it up, also after the topology was killed or replaced. It goes when it
    is sent again and acked, when it is dropped, and after topology.dead.letters.days. A host that cannot be asked is named on
    stderr.

    \b
    Examples:
      squall dead-letters word-count list
      squall dead-letters word-count show 3f2a91c07b5d
      squall dead-letters word-count resend --all
    """
    ctx.obj = name


name_of_group = click.make_pass_decorator(str)


@dead_letters.command("list")
@cluster_options
@name_of_group
def list_letters(name: str, cluster: ClusterOptions) -> None:
    """List the dead letters of all hosts, the oldest of each host first.

    \b
    Examples:
      squall dead-letters word-count list
      squall dead-letters word-count list --json | jq '.letters[].failure.error'
    """
    with cluster.asked(name) as client:
        reader = LetterReader(client, name)
        found = list(reader.letters(values=False))
        if not found and not reader.silent:
            client.topology(name)  # raises if there is none
    if cluster.as_json:
        letters = [without_values(each) for each in found]
        echo_json({"letters": letters, "hosts_not_asked": reader.silent})
    elif found:
        show(table_of(COLUMNS, found), sys.stdout)
    else:
        there = " on the hosts that could be asked" if reader.silent else ""
        echo(f"{name} has no dead letters{there}.", err=True)


def without_values(held: HeldLetter) -> dict[str, Any]:
    """Return a letter for a list. Its values were not asked for; that is not to look as if it had none."""
    return {key: value for key, value in held.shown.items() if key not in ("values", "as_text")}


@dead_letters.command("show")
@click.argument("id", metavar="ID")
@cluster_options
@name_of_group
def show_letter(name: str, cluster: ClusterOptions, id: str) -> None:
    """Show one dead letter with its values.

    \b
    Example:
      squall dead-letters word-count show 3f2a91c07b5d
    """
    with cluster.asked(name) as client:
        reader = LetterReader(client, name)
        found = next(reader.letters(values=True, id=id), None) if ID.fullmatch(id) else None
    if found is None:
        raise SquallError(no_such([id], name, reader))
    if cluster.as_json:
        echo_json(found.shown)
    else:
        write_lines(sys.stdout, lines_of_letter(found))


def lines_of_letter(held: HeldLetter) -> list[Line]:
    """Return a letter as lines: facts, then its values."""
    letter, failure = held.letter, held.letter.failure
    expires = "never" if letter.expires_at is None else moment(letter.expires_at)
    facts = {
        "id": letter.id,
        "host": f"{held.host.host} (supervisor {held.host.supervisor})",
        "task": f"task {letter.task} of {letter.component}, in {letter.topology_id}",
        "stream": letter.stream
        + (f" of {letter.source}" if letter.source else "")
        + (f", directly to task {letter.target}" if letter.target else ""),
        "message id": letter.message_id,
        "emitted": moment(letter.emitted_at),
        "given up": moment(letter.given_up_at),
        "attempts": f"{letter.attempts}, sent again {plural(letter.resent, 'time')}",
        "reason": failure.reason,
        "failed in": "" if failure.component is None else f"task {failure.task} of {failure.component}",
        "error": own_paths(failure.error or ""),
        "acked": "by the dead-letter bolts" if letter.acked else "",
        "sent again": "" if letter.sent_to is None else f"now, by task {letter.sent_to}",
        "not sent again": letter.note,
        "expires": expires,
        "kept as": letter.codec or f"no values: {letter.why_no_values}",
    }
    lines: list[Line] = [((f"{key + ':':16}", "dim"), (value, "")) for key, value in facts.items() if value]
    lines.append((("values:", "dim"),))
    for position, (name, value) in enumerate(zip(letter.fields, letter.values or ())):
        is_text = position in letter.as_text
        text = value if is_text else json.dumps(value, ensure_ascii=False)
        lines.append(((f"  {name} = {text}", ""), ("  (as text)" if is_text else "", "dim")))
    return lines


def choice(command: Command) -> Command:
    """Add [ID...], --all and --component to a command: which letters it is about."""
    everything = click.option("--all", "everything", is_flag=True, help="All dead letters.")
    component = click.option(
        "--component",
        metavar="ID",
        help="The dead letters of this component.",
        shell_complete=completion.components,
    )
    ids = click.argument("ids", metavar="[ID]...", nargs=-1)
    return ids(everything(component(command)))


def chosen_letters(
    reader: LetterReader, ids: tuple[str, ...], everything: bool, component: str | None
) -> list[HeldLetter]:
    """Return the letters that a command is about. Raises a usage error unless they are given in exactly one way."""
    if bool(ids) + everything + (component is not None) != 1:
        raise click.UsageError("say which letters: give their IDs, or --component ID, or --all")
    found = [
        each
        for each in reader.letters(values=False)
        if everything or each.letter.component == component or each.letter.id in ids
    ]
    if missing := sorted(set(ids) - {each.letter.id for each in found}):
        raise SquallError(no_such(missing, reader.name, reader))
    return found


def no_such(ids: list[str], name: str, reader: LetterReader) -> str:
    """Return the text for letters that were not found."""
    where = " on the hosts that could be asked" if reader.silent else ""
    listing = f"`squall dead-letters {name} list` shows those that are there"
    return f"{name} has no dead letter {listed(ids)}{where}; {listing}"


@dead_letters.command("resend")
@choice
@cluster_options
@name_of_group
def resend(
    name: str, cluster: ClusterOptions, ids: tuple[str, ...], everything: bool, component: str | None
) -> None:
    """Send dead letters again: their spout emits them as new tuples, with attempts of their own.

    A letter of a bolt (of a topology with topology.state.path) enters that bolt instead, and counts once.

    A letter is removed when its tree is acked; if it fails again, it is a dead letter again. The spout's ack and fail are not
    called for it. A letter that cannot be sent again stays, and the reason is printed. Exit status 1 if a letter could not be
    sent, or a host could not be asked.

    \b
    Examples:
      squall dead-letters word-count resend 3f2a91c07b5d
      squall dead-letters word-count resend --component lines
      squall dead-letters word-count resend --all
    """
    from squall.api.letters import ResentAnswer

    sent: list[str] = []
    unsent: dict[str, str] = {}
    with cluster.asked(name) as client:
        reader = LetterReader(client, name)
        for answer in reader.change(
            ResentAnswer, "resend", chosen_letters(reader, ids, everything, component)
        ):
            sent += answer.sent
            unsent.update({each.id: each.why for each in answer.unsent})
    cluster.answer(
        {"sent": sent, "unsent": unsent, "hosts_not_asked": reader.silent},
        f"{plural(len(sent), 'dead letter')} of {name} being sent again.",
    )
    for why in dict.fromkeys(unsent.values()):
        same = [id for id, each in unsent.items() if each == why]
        echo(f"not sent again: {', '.join(same)}: {why}", err=True)
    if unsent:
        raise SquallError(f"{plural(len(unsent), 'dead letter')} of {name} could not be sent again")
    check_all_asked(reader)


@dead_letters.command("drop")
@choice
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
@name_of_group
def drop(
    name: str,
    cluster: ClusterOptions,
    ids: tuple[str, ...],
    everything: bool,
    component: str | None,
    yes: bool,
) -> None:
    """Remove dead letters for good.

    Exit status 1 if a host could not be asked.

    \b
    Examples:
      squall dead-letters word-count drop 3f2a91c07b5d
      squall dead-letters word-count drop --all --yes
    """
    from squall.api.letters import DroppedAnswer

    dropped: list[str] = []
    with cluster.asked(name) as client:
        reader = LetterReader(client, name)
        found = chosen_letters(reader, ids, everything, component)
        if found and not yes:
            text = f"Remove {plural(len(found), 'dead letter')} of {harmless(name)} for good?"
            click.confirm(text, abort=True, err=True)
        for answer in reader.change(DroppedAnswer, "drop", found):
            dropped += answer.dropped
    cluster.answer(
        {"dropped": dropped, "hosts_not_asked": reader.silent},
        f"{plural(len(dropped), 'dead letter')} of {name} dropped.",
    )
    check_all_asked(reader)


@dead_letters.command("export")
@click.option(
    "--output", metavar="FILE", type=click.Path(dir_okay=False), shell_complete=files,
    help="Write to a new file instead of stdout.",
)  # fmt: skip
@cluster_options
@name_of_group
def export(name: str, cluster: ClusterOptions, output: str | None) -> None:
    """Write the dead letters as JSON lines: one object for each letter, with its values.

    A value that JSON cannot hold exactly is written as a text; `as_text` of the letter lists the positions of these values.

    \b
    Examples:
      squall dead-letters word-count export > letters.jsonl
      squall dead-letters word-count export --output letters.jsonl
    """
    if output is not None and Path(output).exists():
        raise SquallError(f"{output} exists: give the name of a new file")
    count = texts = 0
    with cluster.asked(name) as client:
        reader = LetterReader(client, name)
        found = reader.letters(values=True)
        first = list(islice(found, 1))  # asks the cluster before the file is made
        with nullcontext(sys.stdout) if output is None else open(output, "x", encoding="utf-8") as out:
            for held in chain(first, found):
                out.write(f"{json.dumps(held.shown)}\n")
                count += 1
                texts += bool(held.letter.as_text)
    where = "" if output is None else f" to {output}"
    partly = f"; {plural(texts, 'letter')} with values that are texts only (as_text)" if texts else ""
    echo(f"{plural(count, 'dead letter')} of {name} written{where}{partly}.", err=True)
    check_all_asked(reader)


def check_all_asked(reader: LetterReader) -> None:
    """Raise an error if a host could not be asked."""
    if reader.silent:
        some = plural(len(reader.silent), "host")
        raise SquallError(f"{some} of {reader.name} could not be asked; the letters there are as they were")
