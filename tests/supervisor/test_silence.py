"""What is said of a worker that lives and sends no heartbeats."""

from __future__ import annotations

import pytest

from supervisor.silence import place_in, text_of

DUMP = """printed by C code
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/home/u/other.py", line 3 in run

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/re/__init__.py", line 166 in match
  File "/home/u/bolts.py", line 12 in execute
  File "/opt/squall/worker/tasks/bolt.py", line 9 in run
"""


def test_the_users_innermost_line_of_the_main_thread_is_named() -> None:
    assert place_in(DUMP) == "/home/u/bolts.py:12, in execute"
    assert text_of(6.2, ("count", 4, 1.0), DUMP) == (
        "has sent no heartbeat for 6 s; at its last heartbeat it was in a call of count[4]; a thread seems to hold Python's"
        " own lock (the GIL); the main thread is at /home/u/bolts.py:12, in execute"
    )


def test_the_last_stacks_count_and_a_library_is_named_where_no_line_of_the_users_is() -> None:
    later = (
        'Current thread 0x01 (most recent call first):\n  File "/usr/lib/python3.11/re/x.py", line 1 in f\n'
    )
    assert place_in(DUMP + later) == "/usr/lib/python3.11/re/x.py:1, in f"


@pytest.mark.parametrize(
    "output", ["", "text", "Current thread 0x1 (most recent call first):\n  <no Python frame>"]
)
def test_a_process_that_shows_nothing_is_said_to_be_stopped(output: str) -> None:
    assert place_in(output) == ""
    assert "does not react to a signal" in text_of(5.0, None, output)
