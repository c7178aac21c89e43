"""Any name has a place of its own in the store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall.cluster import paths
from squall.cluster.store import below, checked_path

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
NAMES = TEXT | st.sampled_from([".", ".."])


@given(NAMES)
def test_any_name_makes_a_path_that_a_store_accepts_and_comes_back_from_it(name: str) -> None:
    path = paths.topology(name)
    assert checked_path(path) == path
    assert paths.unquoted(path.removeprefix(paths.TOPOLOGIES + "/")) == name


@given(NAMES, NAMES)
def test_two_names_never_share_a_place(one: str, other: str) -> None:
    assert (paths.topology(one) == paths.topology(other)) == (one == other)
    assert below(paths.reports(one), paths.report(other, "w1")) == (one == other)


def test_everything_shipped_for_a_topology_is_in_its_bundle() -> None:
    for path in (paths.description("words-1-0"), paths.pickle("words-1-0", "count")):
        assert below(paths.bundle("words-1-0"), path)
