"""A job is done once, by a thread, and tried again after a while if it failed."""

from __future__ import annotations

import threading

from supervisor.jobs import BackgroundJobFailed, Jobs, JobUnderWay
from tests.supervisor.programs import until


def test_a_job_is_done_once_however_often_it_is_requested() -> None:
    done: list[str] = []
    jobs: Jobs[str] = Jobs("test", 2, lambda: None)

    def work() -> str:
        done.append("it")
        return "result"

    jobs.state("a", work, 0.0)
    until(lambda: jobs.state("a", work, 1.0) == "result")
    assert jobs.state("a", work, 2.0) == "result"
    assert done == ["it"]
    jobs.close()


def test_as_many_jobs_run_at_once_as_there_are_threads() -> None:
    gate, running = threading.Event(), threading.Semaphore(0)
    jobs: Jobs[None] = Jobs("test", 2, lambda: None)

    def work() -> None:
        running.release()
        gate.wait(30)

    for key in "abc":
        assert jobs.state(key, work, 7.0) == JobUnderWay(7.0)
    assert running.acquire(timeout=30) and running.acquire(timeout=30)
    assert not running.acquire(timeout=0.05)
    gate.set()
    assert running.acquire(timeout=30), "the third one has its turn"
    jobs.close()


def test_a_failed_job_is_reported_rests_and_is_tried_again() -> None:
    tries: list[int] = []
    jobs: Jobs[str] = Jobs("test", 0)

    def work() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("no")
        return "yes"

    first = jobs.state("a", work, 0.0)
    assert isinstance(first, BackgroundJobFailed) and (first.why, first.backoff.not_before) == ("no", 1.0)
    assert jobs.state("a", work, 0.9) == first
    assert len(tries) == 1
    second = jobs.state("a", work, 1.0)
    assert isinstance(second, BackgroundJobFailed) and second.backoff.not_before == 3.0
    assert jobs.state("a", work, 3.0) == "yes"


def test_a_forgotten_job_is_done_again_but_not_while_it_is_running() -> None:
    gate, done = threading.Event(), []
    jobs: Jobs[None] = Jobs("test", 1)

    def work() -> None:
        gate.wait(30)
        done.append(1)

    jobs.state("a", work, 0.0)
    jobs.forget(lambda key: False)
    assert jobs.knows("a")
    gate.set()
    until(lambda: jobs.state("a", work, 0.0) is None)
    jobs.forget(lambda key: key == "a")
    assert jobs.knows("a")
    jobs.forget(lambda key: False)
    assert not jobs.knows("a")
    jobs.close()


def test_after_the_end_no_job_is_started() -> None:
    gate, done = threading.Event(), []
    jobs: Jobs[object] = Jobs("test", 1)
    jobs.state("a", lambda: gate.wait(30), 0.0)
    jobs.state("b", lambda: done.append(1), 0.0)
    jobs.close()
    gate.set()
    thread = next((each for each in threading.enumerate() if each.name == "squall-test-1"), None)
    if thread is not None:
        thread.join(30)
    assert done == []
