"""How tasks follow supervisors that come and go, and how they are placed again, as transcripts."""

from __future__ import annotations

from tests.nimbus.transcripts import Play


def test_a_topology_waits_for_the_first_supervisor(play: Play) -> None:
    play("""
        @ 0 submit words tasks=2 workers=2
        words ACTIVE
        @ 10 tick
        = nothing changes
        @ 20 supervisor s1 slots=1
        words ACTIVE
          w1 s1/0 (1,0): 1 2
    """)


def test_a_later_supervisor_moves_no_task_of_a_topology_that_has_all_its_workers(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=2 workers=1
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 1 supervisor s2 slots=4
        = nothing changes
    """)


def test_the_tasks_of_a_lost_supervisor_go_elsewhere_and_the_others_keep_their_workers(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; supervisor s2 slots=1; submit words tasks=4 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1 3
          w2 s2/0 (1,0): 2 4
        @ 1 lose s2
        words ACTIVE
          w1 s1/0 (1,0): 1 3
          w3 s1/1 (2,0): 2 4
        @ 2 report words w2 ended
        ! refused
        @ 3 supervisor s2 slots=1
        = nothing changes
    """)


def test_without_another_slot_the_remaining_workers_take_over_and_keep_their_incarnation(
    play: Play,
) -> None:
    play("""
        @ 0 supervisor s1 slots=1; supervisor s2 slots=1; submit words tasks=3 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1 3
          w2 s2/0 (1,0): 2
        @ 1 lose s2
        words ACTIVE
          w1 s1/0 (1,0): 1 2 3
        @ 2 lose s1
        words ACTIVE
        @ 3 supervisor s2 slots=1
        words ACTIVE
          w1 s2/0 (3,0): 1 2 3
    """)


def test_workers_of_a_lost_supervisor_are_not_waited_for(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 kill words
        words KILLED until 31
          w1 s1/0 (1,0): 1
        @ 2 lose s1
        no topology
    """)


def test_topologies_share_no_slot_and_the_oldest_goes_first(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit one tasks=2 workers=2
        one ACTIVE
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 1 submit two tasks=1
        one ACTIVE
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        two ACTIVE
        @ 2 kill one wait=0
        one KILLED until 2
          leaving w1 s1/0 (1,0): 1
          leaving w2 s1/1 (1,0): 2
        two ACTIVE
        @ 3 report one w2 stopped
        one KILLED until 2
          leaving w1 s1/0 (1,0): 1
        two ACTIVE
          w1 s1/1 (2,0): 1
    """)


def test_a_restart_by_the_supervisor_is_the_same_worker_and_reports_of_the_old_process_are_refused(
    play: Play,
) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1
        words ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 report words w1 opened incarnation=1,1
        = nothing changes
        @ 2 report words w1 ended incarnation=1,0
        ! refused
        @ 3 report words w1 ended incarnation=2,0
        ! refused
        @ 4 report words w1 ended incarnation=1,1
        words COMPLETED
          leaving w1 s1/0 (1,0): 1
    """)


def test_a_rebalance_waits_for_the_drain_and_spreads_over_the_wanted_workers(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit words tasks=2 workers=1
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 1 supervisor s2 slots=2
        = nothing changes
        @ 2 rebalance words workers=2
        words REBALANCING until 32
          w1 s1/0 (1,0): 1 2
        @ 3 activate words
        ! IllegalTransition: cannot activate topology 'words': it is REBALANCING; possible now: kill
        @ 4 report words w1 opened drained
        words ACTIVE
          w2 s1/0 (2,0): 1
          w3 s2/0 (2,0): 2
          leaving w1 s1/0 (1,0): 1 2
        @ 5 report words w1 opened drained stopped
        words ACTIVE
          w2 s1/0 (2,0): 1
          w3 s2/0 (2,0): 2
    """)


def test_a_worker_that_keeps_its_tasks_in_a_rebalance_stays_and_drains_again_for_a_kill(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit words tasks=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 1 deactivate words
        words INACTIVE
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 2 rebalance words workers=1
        words REBALANCING until 32
          w1 s1/0 (1,0): 1
          w2 s1/1 (1,0): 2
        @ 3 report words w1 drained
        = nothing changes
        @ 4 report words w2 drained
        words INACTIVE
          w1 s1/0 (1,0): 1 2
          leaving w2 s1/1 (1,0): 2
        @ 5 kill words
        words KILLED until 35
          w1 s1/0 (1,0): 1 2
          leaving w2 s1/1 (1,0): 2
        @ 6 report words w1 drained
        words KILLED until 35
          leaving w2 s1/1 (1,0): 2
          leaving w1 s1/0 (1,0): 1 2
    """)


def test_a_rebalance_is_done_at_its_deadline_even_if_workers_have_not_drained(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit words tasks=2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 2 rebalance words workers=2
        words REBALANCING until 32
          w1 s1/0 (1,0): 1 2
        @ 31 tick
        = nothing changes
        @ 32 tick
        words ACTIVE
          w2 s1/0 (2,0): 1
          w3 s1/1 (2,0): 2
          leaving w1 s1/0 (1,0): 1 2
    """)


def test_a_rebalance_that_changes_nothing_disturbs_no_worker(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 1 rebalance words
        words REBALANCING until 31
          w1 s1/0 (1,0): 1 2
        @ 2 report words w1 drained
        words ACTIVE
          w1 s1/0 (1,0): 1 2
    """)


def test_a_rebalance_can_be_ended_by_kill_and_by_a_crash(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit one tasks=1
        one ACTIVE
          w1 s1/0 (1,0): 1
        @ 1 rebalance one
        one REBALANCING until 31
          w1 s1/0 (1,0): 1
        @ 2 report one w1 crash=boom
        one FAILED (boom)
          leaving w1 s1/0 (1,0): 1
        @ 3 report one w1 stopped
        one FAILED (boom)
        @ 3 kill one
        no topology
        @ 4 submit two tasks=1
        two ACTIVE
          w1 s1/0 (2,0): 1
        @ 5 rebalance two
        two REBALANCING until 35
          w1 s1/0 (2,0): 1
        @ 6 kill two wait=1
        two KILLED until 7
          w1 s1/0 (2,0): 1
    """)
