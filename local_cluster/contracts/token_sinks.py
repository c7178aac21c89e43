"""`check_token_sink` tries every promise of a TokenSink, with a fault at each line of `write`.

Must not know: which system is written to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from local_cluster.contracts.interruption import Fault, Killed, Meanwhile, OwnCode, Place, attempted, where
from local_cluster.contracts.promises import Broken, try_all
from local_cluster.contracts.refusals import REFUSALS
from local_cluster.contracts.sinks import Numbered
from local_cluster.contracts.token_trial import TokenPlace, TokenTrial
from topology_api import TokenSink

#: The rows of an epoch that is larger than others, and how many write at once.
MANY, WRITERS = 2_000, 4


def check_token_sink(
    make: Callable[[], TokenSink],
    values: Callable[[int], Mapping[str, Any]],
    written: Callable[[], Iterable[Any]],
    *,
    refused: Callable[[int], Mapping[str, Any]] | None = None,
) -> None:
    """Check that a TokenSink keeps its contract: rows and token are written together, once, whatever is killed.

    The sink is used as by the workers of a topology: writes are made again after their answer was lost, by a new object or by
    one that was frozen and has an old token; `write` is ended, fails or waits at each line of the sink's own code, while
    another process writes the same epoch. Raises ContractBroken with all promises that are broken.

    make: returns a new sink; each must write to the same place. The place may have other rows in it.
    values: returns the n-th tuple, as a dict from field to value. No two may be equal, and each must make a row.
    written: returns all rows that a reader of the place sees now, as tuples or dicts of the values, in any order.
    refused: returns the n-th tuple that makes a row which the system refuses for good, such as by a constraint; None: there is
        no such row, so `write` never raises RowsRefused. The same of all is refused beside any other rows.
    """
    place = TokenPlace(TokenSink, make, values, written)
    place.refused = None if refused is None else Numbered(refused)
    try_all(place.name, PROMISES, lambda: TokenTrial(place))


def rows_and_token(trial: TokenTrial) -> None:
    sink = trial.sink()
    if (number := trial.number(sink)) != 0:
        raise Broken(f"read_token returned {number} for a token that was never set, instead of 0")
    trial.check("before the first write")
    before = 0
    for epoch in (1, 2, 7, 2**40):
        trial.must_write(sink, epoch, trial.rows(sink), before)
        before = epoch
        if (number := trial.number(trial.sink())) != epoch:
            raise Broken(f"read_token of a new object returned {number} after write({epoch})")


def other_tokens(trial: TokenTrial) -> None:
    sink = trial.sink()
    trial.must_refuse(sink, 5, 4, 0)
    trial.must_write(sink, 5, trial.rows(sink), 0)
    for epoch, expected in ((5, 0), (5, 4), (5, 6), (6, 0), (6, 4), (6, 6), (9, 8)):
        trial.must_refuse(sink, epoch, expected, 5)
        trial.must_refuse(trial.sink(), epoch, expected, 5)
    trial.must_write(sink, 6, trial.rows(sink), 5)


def lost_answers(trial: TokenTrial) -> None:
    before = 0
    for epoch in (1, 2, 3):
        sink = trial.sink()
        rows = trial.rows(sink)
        trial.must_write(sink, epoch, rows, before)
        for again in (sink, trial.sink()):
            if trial.write(again, epoch, rows, before):
                raise Broken(f"write({epoch}) returned True again")
            trial.check(f"after write({epoch}) was made again, since its answer was lost")
        before = epoch


def stale_processes(trial: TokenTrial) -> None:
    old = trial.sink()
    trial.must_write(old, 1, trial.rows(old), trial.number(old))
    new = trial.sink()
    trial.must_write(new, 2, trial.rows(new), trial.number(new))
    trial.must_refuse(old, 2, 1, 2)
    trial.must_write(new, 3, trial.rows(new), 2)
    trial.must_refuse(old, 2, 1, 3)
    trial.must_refuse(old, 4, 1, 3)


def tokens_are_apart(trial: TokenTrial) -> None:
    sink = trial.sink()
    for epoch, before in ((1, 0), (2, 1)):
        for name in (trial.token, f"{trial.token}-1", trial.token[:-1], trial.token.replace("/0/", "/1/")):
            trial.must_write(sink, epoch, trial.rows(sink), before, name)


def without_rows(trial: TokenTrial) -> None:
    sink = trial.sink()
    trial.must_write(sink, 1, [], 0)
    trial.must_write(sink, 2, trial.rows(sink, 1), 1)
    trial.must_write(sink, 3, [], 2)


def without_epochs(trial: TokenTrial) -> None:
    trial.around.without_epochs()
    sink = trial.sink()
    for _ in range(3):
        trial.must_write(sink, None, trial.rows(sink), 0)
    if (number := trial.number(sink)) != 0:
        raise Broken(f"read_token returned {number} after writes without a token")


def large_epochs(trial: TokenTrial) -> None:
    sink = trial.sink()
    trial.must_write(sink, 1, trial.rows(sink, MANY), 0)
    trial.must_refuse(sink, 1, 0, 1)


def many_write_at_once(trial: TokenTrial) -> None:
    before = 0
    for epoch in (1, 2, 3):
        sinks = [trial.sink() for _ in range(WRITERS)]
        rows = [trial.rows(sink) for sink in sinks]

        def write(
            number: int, epoch: int = epoch, before: int = before, sinks: Any = sinks, rows: Any = rows
        ) -> Any:
            kept = trial.shipped_rows(rows[number])
            return sinks[number].write(epoch, kept, before, trial.token)

        text = f"write({epoch}) by {WRITERS} processes at once"
        with ThreadPoolExecutor(WRITERS) as pool:
            done = trial.calls.make(text, lambda write=write: list(pool.map(write, range(WRITERS))))  # type: ignore[misc]
        if done.count(True) != 1:
            raise Broken(f"{text} returned {done}: one may be True")
        trial.now_visible(rows[done.index(True)])
        trial.check(f"after {text}")
        before = epoch


def interrupted(trial: TokenTrial, killed: bool) -> None:
    """At each line of `write` it is ended, or raises; then the token is read, by a new object or by the same one."""
    for place, code, epoch, sink in at_each_line(trial):
        rows = trial.rows(sink)
        kept = trial.shipped_rows(rows)
        text = f"write({epoch}), {'killed' if killed else 'which raises'} at {where(place)}"
        trial.calls.made.append(text)
        write = partial(sink.write, epoch, kept, epoch - 1, trial.token)
        code.ended_at(place, Killed if killed else Fault, write)
        again = trial.sink() if killed else sink
        number = trial.number(again)
        if number == epoch:
            trial.now_visible(rows)
        trial.check(f"with the number {number} after {text}")
        if number == epoch - 1:
            trial.must_write(again, epoch, rows, number)
        elif number != epoch:
            raise Broken(f"read_token returned {number} after {text}")


def two_write_at_once(trial: TokenTrial) -> None:
    """At each line of `write` another process writes the same epoch."""
    for place, code, epoch, one in at_each_line(trial):
        other = trial.sink()
        rows, rows_of_other = trial.rows(one), trial.rows(other)
        kept, kept_of_other = trial.shipped_rows(rows), trial.shipped_rows(rows_of_other)
        both = Meanwhile(
            partial(attempted, partial(other.write, epoch, kept_of_other, epoch - 1, trial.token))
        )
        text = f"write({epoch}), which waits at {where(place)} while another process writes"
        trial.calls.made.append(text)
        attempted(
            partial(code.at, place, both.begin, partial(one.write, epoch, kept, epoch - 1, trial.token))
        )
        both.end()
        number, there = trial.number(other), trial.place.rows()
        won = [
            each for each in (rows, rows_of_other) if any(there[trial.values_of[id(row)][1]] for row in each)
        ]
        if len(won) != number - epoch + 1:
            raise Broken(f"after {text} the number is {number}, and rows of {len(won)} of the two are there")
        for each in won:
            trial.now_visible(each)
        trial.check(f"after {text}")
        if not won:
            trial.must_write(other, epoch, rows, epoch - 1)


def rows_meanwhile(trial: TokenTrial) -> None:
    """At each line of `write` the task makes rows of the next epoch."""
    sink = trial.sink()
    code = OwnCode(type(sink))
    rows = trial.rows(sink)
    places = code.places(lambda: trial.must_write(sink, 1, rows, 0))
    rows = trial.rows(sink)
    for epoch, place in enumerate(places, 2):
        made: list[Any] = []
        both = Meanwhile(lambda made=made: made.extend(trial.rows(sink)))  # type: ignore[misc]
        code.at(place, both.begin_once, partial(trial.must_write, sink, epoch, rows, epoch - 1))
        both.end()
        rows = made


def at_each_line(trial: TokenTrial) -> Iterator[tuple[Place, OwnCode, int, TokenSink]]:
    """Yield each place that `write` reaches, with the epoch to write next and a sink: first of a new token, then of one that
    was set before."""
    sink = trial.sink()
    code = OwnCode(type(sink))
    for epoch in (1, 2):
        rows = trial.rows(sink)
        kept = trial.shipped_rows(rows)
        places = code.places(lambda: sink.write(epoch, kept, epoch - 1, trial.token))  # noqa: B023
        trial.now_visible(rows)
        trial.check(f"after write({epoch})")
        base = trial.token
        for number, place in enumerate(places):
            if epoch == 1:
                trial.token = f"{base}/{number}"
            new = trial.sink()
            if (found := trial.number(new)) != (before := 0 if epoch == 1 else number + 2):
                raise Broken(f"read_token returned {found} instead of {before}")
            yield place, code, before + 1, new
        trial.token = base


PROMISES: Mapping[str, Callable[[TokenTrial], None]] = {
    "rows and token are written together": rows_and_token,
    "nothing is written if the token is another one": other_tokens,
    "a write that is made again is refused": lost_answers,
    "a stale process writes nothing": stale_processes,
    "tokens do not disturb each other": tokens_are_apart,
    "an epoch without rows sets the token": without_rows,
    "rows without an epoch are written, and no token is set": without_epochs,
    "of many writers at once, one wins": many_write_at_once,
    "two processes may write at once": two_write_at_once,
    "rows may be made while write runs": rows_meanwhile,
    "a process may be killed in write": partial(interrupted, killed=True),
    "write may raise at any line": partial(interrupted, killed=False),
    "large epochs are whole": large_epochs,
    **REFUSALS,
}
