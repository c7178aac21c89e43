"""How topologies come and go, as transcripts; `transcripts.py` says how to read them."""

from __future__ import annotations

from tests.nimbus.transcripts import Play


def test_a_topology_is_placed_at_once_and_gone_when_its_workers_have_drained_and_stopped(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=4; submit words tasks=3 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1 3
          w2 s1/1 (1,0): 2
        @ 5 kill words
        words KILLED until 35
          w1 s1/0 (1,0): 1 3
          w2 s1/1 (1,0): 2
        @ 6 report words w1 opened drained
        = nothing changes
        @ 7 report words w2 opened drained
        words KILLED until 35
          leaving w1 s1/0 (1,0): 1 3
          leaving w2 s1/1 (1,0): 2
        @ 8 report words w1 opened drained stopped
        words KILLED until 35
          leaving w2 s1/1 (1,0): 2
        @ 9 report words w2 opened drained stopped
        no topology
    """)


def test_a_kill_ends_at_its_deadline(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 5 kill words wait=2
        words KILLED until 7
          w1 s1/0 (1,0): 1
        @ 6.9 tick
        = nothing changes
        @ 7 tick
        words KILLED until 7
          leaving w1 s1/0 (1,0): 1
        @ 100 tick
        = nothing changes
        @ 101 report words w1 stopped
        no topology
    """)


def test_a_second_kill_keeps_the_deadline_unless_it_names_another(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 kill words wait=600
        words KILLED until 601
          w1 s1/0 (1,0): 1
        @ 2 kill words
        = nothing changes
        @ 3 kill words wait=0
        words KILLED until 3
          leaving w1 s1/0 (1,0): 1
        @ 4 report words w1 stopped
        no topology
        @ 5 kill words
        ! NoSuchTopology: there is no topology named 'words'
    """)


def test_a_killed_topology_accepts_no_other_command(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 kill words
        words KILLED until 31
          w1 s1/0 (1,0): 1
        @ 2 activate words
        ! IllegalTransition: cannot activate topology 'words': it is KILLED; possible now: kill
        @ 2 deactivate words
        ! IllegalTransition: cannot deactivate topology 'words': it is KILLED; possible now: kill
        @ 2 rebalance words
        ! IllegalTransition: cannot rebalance topology 'words': it is KILLED; possible now: kill
    """)


def test_a_topology_without_workers_is_killed_at_once(play: Play) -> None:
    play("""
        @ 0 submit words tasks=1
        words ACTIVE
        @ 1 kill words
        no topology
    """)


def test_a_topology_that_never_was_active_can_be_killed(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1 inactive
        words INACTIVE
          w1 s1/0 (1,0): 1
        @ 1 kill words
        words KILLED until 31
          w1 s1/0 (1,0): 1
        @ 2 report words w1 drained
        words KILLED until 31
          leaving w1 s1/0 (1,0): 1
        @ 2 report words w1 drained stopped
        no topology
    """)


def test_activate_and_deactivate_may_be_repeated(play: Play) -> None:
    play("""
        @ 0 submit words tasks=1 inactive
        words INACTIVE
        @ 1 deactivate words
        = nothing changes
        @ 2 activate words
        words ACTIVE
        @ 3 activate words
        = nothing changes
        @ 4 deactivate words
        words INACTIVE
    """)


def test_a_name_is_taken_until_its_topology_is_gone(play: Play) -> None:
    taken = "a topology named 'words' exists already: kill it first, or submit under another name"
    being_killed = (
        "a topology named 'words' is being killed: submit again when it is gone, or under another name"
    )
    play(f"""
        @ 0 supervisor s1 slots=2; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 submit words tasks=2
        ! NameTaken: {taken}
        @ 2 kill words wait=0
        words KILLED until 2
          leaving w1 s1/0 (1,0): 1
        @ 3 submit words tasks=2
        ! NameTaken: {being_killed}
        @ 4 report words w1 stopped
        no topology
        @ 5 submit words tasks=2
        words ACTIVE
          w1 s1/0 (2,0): 1 2
    """)


def test_late_reports_of_an_earlier_topology_of_the_name_are_refused(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 kill words wait=0
        words KILLED until 1
          leaving w1 s1/0 (1,0): 1
        @ 2 report words w1 stopped
        no topology
        @ 3 report words w1 crash=boom incarnation=1,0
        ! refused
        @ 4 submit words tasks=1
        words ACTIVE
          w1 s1/0 (2,0): 1
        @ 5 report words w1 crash=boom incarnation=1,0
        ! refused
    """)


def test_an_unknown_name_is_an_error_of_every_command_and_changes_nothing(play: Play) -> None:
    play("""
        @ 0 kill words
        ! NoSuchTopology: there is no topology named 'words'
        @ 0 activate words
        ! NoSuchTopology: there is no topology named 'words'
        @ 0 deactivate words
        ! NoSuchTopology: there is no topology named 'words'
        @ 0 rebalance words
        ! NoSuchTopology: there is no topology named 'words'
        @ 0 report words w1
        ! refused
    """)


def test_a_topology_is_completed_when_all_its_workers_have_ended_and_keeps_its_name(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit words tasks=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 1 report words w1 opened ended
        = nothing changes
        @ 2 report words w2 opened ended
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
        @ 3 report words w1 opened ended stopped
        words COMPLETED
          leaving w2 s1/1 (1,0): 2
        @ 3 report words w2 opened ended stopped
        words COMPLETED
        @ 1000 tick
        = nothing changes
        @ 1001 kill words
        no topology
    """)


def test_completion_is_permanent(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 report words w1 opened ended
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
        @ 2 report words w1 opened
        = nothing changes
        @ 3 report words w1 opened crash=late
        = nothing changes
        @ 4 activate words
        ! IllegalTransition: cannot activate topology 'words': it is COMPLETED; possible now: kill
        @ 5 report words w1 stopped
        words COMPLETED
    """)


def test_a_source_that_ended_before_its_topology_was_deactivated_still_completes_it(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 deactivate words
        words INACTIVE
          w1 s1/0 (1,0): 1
        @ 2 report words w1 opened ended
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
    """)


def test_a_drain_does_not_wait_for_workers_that_have_ended_or_stopped(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=3; submit words tasks=3 workers=3
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
          w3 s1/2 (1,0): 3
        @ 1 report words w1 opened ended; kill words
        words KILLED until 31
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
          w3 s1/2 (1,0): 3
        @ 2 report words w2 drained
        = nothing changes
        @ 3 report words w3 stopped
        words KILLED until 31
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
    """)


def test_a_completed_topology_that_is_killed_waits_only_for_its_workers_to_be_gone(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 report words w1 opened ended
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
        @ 2 kill words
        words KILLED until 32
          leaving w1 s1/0 (1,0): 1
        @ 3 report words w1 opened ended stopped
        no topology
    """)


def test_a_crash_fails_the_topology_and_its_error_is_kept_until_kill(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit words tasks=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 1 report words w2 crash=ValueError
        words FAILED (ValueError)
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
        @ 2 report words w1 stopped
        words FAILED (ValueError)
          leaving w2 s1/1 (1,0): 2
        @ 2 report words w2 stopped crash=ValueError
        words FAILED (ValueError)
        @ 3 submit words tasks=1
        ! NameTaken: a topology named 'words' exists already: kill it first, or submit under another name
        @ 4 activate words
        ! IllegalTransition: cannot activate topology 'words': it is FAILED; possible now: kill
        @ 5 kill words
        no topology
    """)


def test_a_crash_during_the_drain_does_not_keep_a_killed_topology(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 kill words
        words KILLED until 31
          w1 s1/0 (1,0): 1
        @ 2 report words w1 crash=ValueError
        words KILLED until 31
          leaving w1 s1/0 (1,0): 1
        @ 3 report words w1 stopped crash=ValueError
        no topology
    """)


def test_another_nimbus_over_the_same_store_continues_where_the_first_stopped(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=3; submit words tasks=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 1 report words w1 opened ended
        = nothing changes
        @ 2 another nimbus
        = nothing changes
        @ 3 report words w2 opened ended
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
        @ 4 submit more tasks=1
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
        more ACTIVE
          w1 s1/2 (2,0): 1
        @ 5 kill more wait=4
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
        more KILLED until 9
          w1 s1/2 (2,0): 1
        @ 6 another nimbus
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
        more KILLED until 10
          w1 s1/2 (2,0): 1
        @ 9.9 tick
        = nothing changes
        @ 10 tick
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
        more KILLED until 10
          leaving w1 s1/2 (2,0): 1
        @ 11 report more w1 stopped
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
    """)
