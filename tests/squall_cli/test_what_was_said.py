"""A person reads file names as they typed them, and a note that comes again and again once."""

from __future__ import annotations

from squall_cli.said import latest, on_one_line, own_paths

SHA = "5f4d6d18a2feed5565868b66b7cd049b9818d4ba9b2433648c048643ecd56a8e"


def death(worker: str, pid: int, end: str, why: str = "no file 'README.md'") -> str:
    return f"worker {worker} (pid {pid}) of topology 't' ended by itself with status 77: {why}; {end}"


def test_files_that_travelled_are_named_as_beside_the_topology() -> None:
    home = f"/var/lib/squall/supervisor/code/{SHA}"
    assert own_paths(f"boom ({home}/app.py:19, in prepare)") == "boom (app.py:19, in prepare)"
    assert own_paths(f'File "{home}/my/bolts.py", line 3') == 'File "my/bolts.py", line 3'
    assert own_paths(f"{home}/a.py:1 and {home}/b.py:2") == "a.py:1 and b.py:2"
    for kept in ("/usr/lib/python3.11/json/decoder.py:3", f"/tmp/{SHA}/x", "/home/me/code/app.py:4"):
        assert own_paths(kept) == kept


def test_of_the_deaths_of_one_worker_for_one_reason_the_last_is_told() -> None:
    notes = [
        death("w1", 10, "it is started again at once"),
        death("w1", 11, "its 2nd death in 1 s; it is started again in 1 s"),
        "a supervisor went away",
        death("w1", 12, "its 3rd death in 3 s; it is started again in 2 s"),
    ]
    assert latest(notes, 3) == notes[2:]
    assert latest(notes, 1) == notes[3:]


def test_other_reasons_and_other_workers_stay() -> None:
    notes = [
        death("w1", 10, "it is started again at once"),
        death("w2", 11, "it is started again at once"),
        death("w2", 12, "it is started again at once", why="the disk is full"),
    ]
    assert latest([*notes, *notes], 5) == notes


def test_of_preparations_that_fail_the_last_is_told_its_output_apart_from_the_sentence() -> None:
    sentence = "worker w1 of topology 't' cannot be started: its environment cannot be built"
    notes = [
        f"{sentence}; it is tried again in 1 s\n  ERROR: no such package\n  and more",
        f"{sentence}; its 2nd failed preparation in 1 s; it is tried again in 2 s\n  ERROR: no such package\n  and more",
    ]
    assert latest(notes, 3) == notes[1:]
    assert on_one_line(notes[0]) == (
        f"{sentence}; it is tried again in 1 s | ERROR: no such package | and more"
    )
    assert on_one_line("one\n  | two") == "one | two"
    assert on_one_line("") == ""
