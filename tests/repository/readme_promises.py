"""The promises of the README about state, and the tests that show them literally.

`test_readme_promises.py` checks that each sentence still stands in the README under its number, and that each test exists. So a
promise changes together with its tests. Must not know: what a test does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

STATE: Final = "local_cluster/test_promises_of_state.py"
EXPLAIN: Final = "squall_cli/test_explain_command.py"


class ReadmePromise(NamedTuple):
    """A promise. `says`: words of the README, without its line breaks; `tests`: FILE::FUNCTION, below tests/."""

    number: int
    says: str
    tests: tuple[str, ...]


#: The first promise that is listed here.
FIRST: Final = 7
PROMISES: Final = (
    ReadmePromise(
        7,
        "counts once in the state of bolts and in what they emit to other bolts, however often the worker is killed",
        (
            f"{STATE}::test_state_counts_each_tuple_once",
            "faults/test_kills_with_state.py::test_at_whichever_step_of_an_epoch_a_process_dies_each_tuple_counts_once",
        ),
    ),
    ReadmePromise(
        8,
        "comes epoch by epoch: each tuple of such a spout once, and with each epoch the same cut through the stream",
        (
            f"{STATE}::test_committing_sinks_show_each_tuple_once_and_all_sinks_the_same_cut",
            "local_cluster/test_moved_states.py::test_rows_of_a_token_sink_are_written_once_over_a_move",
        ),
    ),
    ReadmePromise(
        9,
        "when `execute` or a timer raises, its changes of state and its emissions have not happened",
        (
            f"{STATE}::test_a_call_is_all_or_nothing",
            "local_cluster/test_stateful_bolts.py::test_a_call_that_raises_has_changed_and_emitted_nothing",
            "local_cluster/test_stateful_bolts.py::test_a_timer_that_raises_is_tried_again_and_has_changed_nothing",
        ),
    ),
    ReadmePromise(
        10,
        "`squall explain FILE` says for each path from a spout to a sink what holds and which component lowers it",
        (
            f"{STATE}::test_nothing_is_silently_weaker",
            f"{EXPLAIN}::test_the_table_names_the_pair_and_the_sentences_what_lowers_it",
        ),
    ),
)
