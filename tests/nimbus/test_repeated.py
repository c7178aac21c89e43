"""Which version a rollback chooses, and what it submits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nimbus.submission.repeated import NoRollback, chosen, repetition
from squall.cluster.records import HowReplaced, SetOptions, VersionRecord
from tests.nimbus.transcripts import a_topology
from tests.squall.cluster.small_records import WORDS

PRESENT = replace(WORDS, id="words-7-99")


def version(number: int, how: HowReplaced = "replaced") -> VersionRecord:
    return VersionRecord(f"words-{number}-99", "words", how, None, 1.0, 2.0, WORDS.conf, {}, {}, "3.11")


EARLIER = [version(6, "rolled back"), version(4), version(5, "rolled back"), version(2)]


@pytest.mark.parametrize(
    ("wanted", "number"), [(None, 4), ("words-2-99", 2), ("2", 2), ("6", 6), ("words-5-99", 5)]
)
def test_the_version_that_was_replaced_last_returns_unless_one_is_named(
    wanted: str | None, number: int
) -> None:
    assert chosen(PRESENT, EARLIER, wanted) is next(
        each for each in EARLIER if each == version(number, each.how)
    )


@pytest.mark.parametrize(
    ("earlier", "wanted", "why"),
    [
        (
            EARLIER[:1],
            None,
            "no version that was replaced is kept; kept are: words-6-99 (rolled back), and may be named",
        ),
        ([], None, "cannot be rolled back: no earlier version is kept"),
        (
            EARLIER[:2],
            "7",
            "words-7-99 is the present version of topology 'words'; kept are: words-6-99 (rolled back), w",
        ),
        (EARLIER[:2], "words-7-99", "words-7-99 is the present version"),
        (
            EARLIER[3:],
            "3",
            "no version '3' of topology 'words' is kept; kept are: words-2-99 (replaced); an older version",
        ),
        (EARLIER[3:], "99", "no version '99' of topology 'words' is kept"),
    ],
)
def test_a_rollback_that_is_impossible_names_the_versions_that_are_kept(
    earlier: list[VersionRecord], wanted: str | None, why: str
) -> None:
    with pytest.raises(NoRollback) as raised:
        chosen(PRESENT, earlier, wanted)
    assert why in str(raised.value)


def test_what_the_version_had_is_submitted_and_options_of_a_newer_release_have_their_defaults() -> None:
    conf = {key: value for key, value in WORDS.conf.items() if key != "topology.queue.size"}
    options = SetOptions({"mine": 1}, {}, {"lines": 3})
    old = replace(
        version(4),
        conf={**conf, "mine": 1},
        component_confs={"lines": conf},
        files={"code": "ab"},
        set_options=options,
    )
    made = repetition(old, a_topology("words", 2))
    assert made.conf == {**WORDS.conf, "mine": 1} and made.component_confs == {"lines": WORDS.conf}
    assert (made.files, made.options, made.repeats) == ({"code": "ab"}, options, "words-4-99")
    assert made.replace and made.reset_options, "what was set for the present version is not kept"
