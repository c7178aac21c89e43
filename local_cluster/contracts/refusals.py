"""What a TokenSink promises of rows that its system refuses for good: it names them, and writes nothing meanwhile.

Must not know: which system is written to, why it refuses a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from local_cluster.contracts.interruption import Killed, OwnCode, attempted, where
from local_cluster.contracts.promises import Broken
from local_cluster.contracts.token_trial import TokenTrial
from topology_api import RowsRefused, TokenSink
from worker.errors.reports import failure_text

#: Whether the rows of a call are refused.
MIXES: Final = ((True,), (False, True), (True, False), (False, True, True, False, True, False))


def mixed(trial: TokenTrial, sink: TokenSink, mix: tuple[bool, ...]) -> list[Any]:
    """Return rows, of which some are refused."""
    return [(trial.refused_row(sink) if refused else trial.rows(sink, 1)[0]) for refused in mix]


def must_name(
    trial: TokenTrial, sink: TokenSink, epoch: int | None, rows: list[Any], expected: int
) -> list[int]:
    """Write rows of which some are refused, and return the positions that the sink names."""
    token = None if epoch is None else trial.token
    text = f"write({epoch}, {len(rows)} rows, of which some are refused, expected={expected})"
    trial.calls.made.append(text)
    try:
        done = sink.write(epoch, trial.shipped_rows(rows), expected, token)
    except RowsRefused as error:
        named = list(error.reasons)
    except Exception as error:
        raise Broken(
            f"{text} raised {failure_text(error)}: raise RowsRefused, which names the rows"
        ) from error
    else:
        raise Broken(f"{text} returned {done!r}: raise RowsRefused, which names the rows")
    if not named or not all(
        type(at) is int and 0 <= at < len(rows) and trial.is_refused(rows[at]) for at in named
    ):
        right = [at for at, row in enumerate(rows) if trial.is_refused(row)]
        raise Broken(f"{text} named the rows {named}: name some of {right}, their positions in the list")
    trial.check(f"after {text}")
    return named


def refused_rows(trial: TokenTrial) -> None:
    """Named in one call, or in several; then the others are written under the same number."""
    if trial.place.refused is None:
        return
    for epoch, mix in enumerate(MIXES, 1):
        sink = trial.sink()
        rows = mixed(trial, sink, mix)
        while any(map(trial.is_refused, rows)):
            named = must_name(trial, sink, epoch, rows, epoch - 1)
            if (number := trial.number(sink)) != epoch - 1:
                raise Broken(f"after rows of epoch {epoch} were refused read_token returned {number}")
            must_name(trial, trial.sink(), epoch, rows, epoch - 1)
            rows = [row for at, row in enumerate(rows) if at not in named]
        trial.must_write(sink, epoch, rows, epoch - 1)


def refused_without_epochs(trial: TokenTrial) -> None:
    """A batch that belongs to no epoch: only the tuples of refused rows fail."""
    if trial.place.refused is None:
        return
    trial.around.without_epochs()
    for mix in MIXES:
        sink = trial.sink()
        rows = mixed(trial, sink, mix)
        while any(map(trial.is_refused, rows)):
            named = must_name(trial, sink, None, rows, 0)
            rows = [row for at, row in enumerate(rows) if at not in named]
        if rows:
            trial.must_write(sink, None, rows, 0)


def interrupted_refusals(trial: TokenTrial) -> None:
    """A process is killed at each line of a call with rows that are refused."""
    if trial.place.refused is None:
        return
    sink = trial.sink()
    code = OwnCode(type(sink))
    rows = mixed(trial, sink, MIXES[-1])
    kept = trial.shipped_rows(rows)
    for place in code.places(partial(attempted, partial(sink.write, 1, kept, 0, trial.token))):
        new = trial.sink()
        text = f"write(1) with rows that are refused, killed at {where(place)}"
        trial.calls.made.append(text)
        code.ended_at(place, Killed, partial(new.write, 1, trial.shipped_rows(rows), 0, trial.token))
        if (number := trial.number(trial.sink())) != 0:
            raise Broken(f"read_token returned {number} after {text}")
        trial.check(f"after {text}")


REFUSALS: Mapping[str, Callable[[TokenTrial], None]] = {
    "refused rows are named, and nothing is written": refused_rows,
    "refused rows are named without an epoch, too": refused_without_epochs,
    "a process may be killed while rows are refused": interrupted_refusals,
}
