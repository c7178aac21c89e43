"""Where a test run spends its time: a table by folder, the slowest tests, and those over ten seconds without a reason.

`tests/conftest.py` takes the hooks of pytest from here. The table is printed before pytest's own summary and written to
`build/test-times.txt`, after the stages that `scripts/test` has put there. `LONG_TESTS` gives the reason of each test that may
take longer than `LONG_SECS` on a quiet machine; the run lists missing entries, but does not fail: times depend on the machine.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.long_tests import LONG_TESTS

#: A test above this many seconds needs a line in `LONG_TESTS`.
LONG_SECS = 10.0
SLOWEST = 30
#: Tests from this many seconds on are in the file.
NOTICED_SECS = 0.5
FILE = Path(__file__).resolve().parents[1] / "build" / "test-times.txt"

_BEFORE: Final = pytest.StashKey[float]()
_seconds: defaultdict[str, float] = defaultdict(float)
_processor: defaultdict[str, float] = defaultdict(float)


def folder_of(test: str) -> str:
    """`tests/worker` of `tests/worker/test_ids.py::test_x`."""
    return "/".join(test.partition("::")[0].split("/")[:2])


def reason_for(test: str) -> str | None:
    """The reason why a test may take long: that of the test itself, of its file, or of its folder."""
    name = test.partition("[")[0]
    for key in (name, name.partition("::")[0], folder_of(name)):
        if key in LONG_TESTS:
            return LONG_TESTS[key]
    return None


def longest_first(seconds: Mapping[str, float]) -> Iterable[tuple[str, float]]:
    """The pairs of a mapping, longest time first."""
    return sorted(seconds.items(), key=lambda pair: -pair[1])


def by_folder(seconds: Mapping[str, float]) -> dict[str, float]:
    """The sums of the folders."""
    sums: defaultdict[str, float] = defaultdict(float)
    for test, spent in seconds.items():
        sums[folder_of(test)] += spent
    return dict(sums)


def rows(tests: Iterable[tuple[str, float]], processor: Mapping[str, float]) -> list[str]:
    """A line for each test: seconds, processor seconds, name."""
    return [f"{spent:7.1f} {processor.get(test, 0.0):9.1f}  {test}" for test, spent in tests]


def table(seconds: Mapping[str, float], processor: Mapping[str, float]) -> list[str]:
    """Lines: seconds, processor seconds and tests by folder, the slowest tests, and long tests without a reason."""
    tests = Counter(folder_of(test) for test in seconds)
    busy = by_folder(processor)
    lines = ["seconds processor  tests  folder"]
    lines += [
        f"{spent:7.1f} {busy.get(folder, 0.0):9.1f} {tests[folder]:6,}  {folder}"
        for folder, spent in longest_first(by_folder(seconds))
    ]
    lines += [f"{sum(seconds.values()):7.1f} {sum(processor.values()):9.1f} {len(seconds):6,}  all"]
    lines += ["", "seconds processor  slowest tests"]
    lines += rows([*longest_first(seconds)][:SLOWEST], processor)
    unexplained = [
        f"{spent:7.1f}  {test}"
        for test, spent in longest_first(seconds)
        if spent > LONG_SECS and reason_for(test) is None
    ]
    if unexplained:
        lines += ["", f"above {LONG_SECS:.0f} s without a reason in tests/long_tests.py", *unexplained]
    return lines


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Record the processor time of this process and of its ended children; a test's share is the difference."""
    outcome = yield
    spent = sum(os.times()[:4])
    # The first test of a process is not charged with the imports and the collection before it.
    outcome.get_result().user_properties.append(("processor", spent - item.config.stash.get(_BEFORE, spent)))
    item.config.stash[_BEFORE] = spent


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up setup, call and teardown of each test (with xdist: in the process that collects the reports)."""
    _seconds[report.nodeid] += report.duration
    _processor[report.nodeid] += sum(
        float(str(spent)) for name, spent in report.user_properties if name == "processor"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table and write the file, in whole runs by `scripts/test` alone."""
    if "SQUALL_TEST_STAGES" not in os.environ or not _seconds:
        return
    lines = table(_seconds, _processor)
    stages = Path(os.environ["SQUALL_TEST_STAGES"])
    FILE.parent.mkdir(exist_ok=True)
    before = stages.read_text(encoding="utf-8") if stages.exists() else ""
    noticed = [(test, spent) for test, spent in longest_first(_seconds) if spent >= NOTICED_SECS]
    more = ["", f"seconds processor  all tests from {NOTICED_SECS} s on", *rows(noticed, _processor)]
    FILE.write_text("\n".join([before, *lines, *more, ""]), encoding="utf-8")
    terminalreporter.section(f"where the time went ({FILE.relative_to(FILE.parents[1])})")
    terminalreporter.write_line(before)
    for line in lines:
        terminalreporter.write_line(line)
