"""Who keeps a connection to a server when there are too many; time is an input here. Floods: tests/security/test_floods.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall.http.admission import ADDRESS, FULL, UNKNOWN, YOUNG_SECS, Admission, shared_address


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_oldest_unknown_connection_of_an_address_goes_for_a_new_one() -> None:
    clock = Clock()
    admission = Admission(lambda: 1000, clock, per_address=2)
    for number in range(3):
        assert admission.enter(number, "10.0.0.1").evicted is None, "it is young and may yet show credentials"
    clock.now = YOUNG_SECS
    assert admission.enter(3, "10.0.0.2").evicted is None, "another address"
    assert [admission.enter(number, "10.0.0.1").evicted for number in (4, 5)] == [0, 1]
    assert admission.closed == {ADDRESS: 2, UNKNOWN: 0, FULL: 0}


def test_connections_that_have_shown_credentials_do_not_count_for_their_address() -> None:
    clock = Clock()
    admission = Admission(lambda: 1000, clock, per_address=2)
    for number in range(100):
        assert admission.enter(number, "10.0.0.1").evicted is None
        admission.show(number)
        clock.now += YOUNG_SECS
    assert (admission.unknown, admission.open) == (0, 100)


def test_an_address_that_floods_loses_its_own_connections_and_no_others() -> None:
    admission = Admission(lambda: 100, Clock())
    assert admission.enter(0, "10.0.0.9").admitted
    evicted = [admission.enter(number, "10.0.0.1").evicted for number in range(1, 60)]
    assert evicted == [None] * 24 + list(range(1, 36))
    assert admission.unknown == 25


def test_no_place_is_taken_when_all_are_in_use() -> None:
    admission = Admission(lambda: 3, Clock())
    for number in range(3):
        admission.enter(number, "10.0.0.1")
        admission.show(number)
    refused = admission.enter(3, "10.0.0.2")
    assert not refused.admitted and refused.evicted is None
    admission.leave(1)
    assert admission.enter(3, "10.0.0.2").admitted


def test_closed_connections_are_logged_once_a_minute_with_their_number() -> None:
    clock = Clock()
    admission = Admission(lambda: 0, clock)
    notices = []
    for _ in range(200):
        notices.append(admission.enter(1, "10.0.0.1").notice)
        clock.now += 1.0
    assert [each.closed for each in notices if each is not None] == [1, 60, 60, 60]
    assert admission.turned_away == 200


def test_a_network_that_one_host_has_counts_as_one_address() -> None:
    assert shared_address("::ffff:10.0.0.1") == shared_address("10.0.0.1")
    assert shared_address("2001:db8::1") == shared_address("2001:db8::ffff:0:1")
    assert shared_address("2001:db8::1") != shared_address("2001:db8:0:1::1")
    assert shared_address("fe80::1%eth0") == shared_address("fe80::2")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "show", "leave"]), st.integers(0, 40), st.sampled_from(["a", "b", "c"])
        ),
        max_size=300,
    )
)
def test_a_known_connection_is_never_closed_and_strangers_have_a_quarter(
    steps: list[tuple[str, int, str]],
) -> None:
    clock = Clock()
    admission = Admission(lambda: 80, clock, per_address=3)
    there: set[int] = set()
    known: set[int] = set()
    for step, number, host in steps:
        clock.now += 0.4
        if step == "enter" and number not in there:
            evicted = admission.enter(number, host).evicted
            assert evicted not in known
            if evicted is not None:
                admission.leave(evicted)
                there.discard(evicted)
            there.add(number)
        elif step == "show" and number in there:
            admission.show(number)
            known.add(number)
        elif step == "leave":
            admission.leave(number)
            there.discard(number)
            known.discard(number)
        assert admission.unknown == len(there - known) <= 20
        assert admission.open == len(there)
