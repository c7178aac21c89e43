"""A module or file that a worker of a cluster lacks is reported with the option that ships it; elsewhere without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from topology_api.errors import SquallError
from worker.errors.reports import FILE, MODULE, make_report


def raised(act: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:
        act()
    return caught.value


def lacks_a_module() -> None:
    import a_module_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401


def lacks_a_name() -> None:
    from pathlib import no_such_name  # type: ignore[attr-defined]  # noqa: F401


def cannot_be_unpickled() -> None:
    try:
        lacks_a_module()
    except ImportError as error:
        raise SquallError("cannot be unpickled here") from error


def lacks_a_file() -> None:
    Path("/no/such/file").read_text()


@pytest.fixture
def on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(f"/var/lib/squall/supervisor/code/{'0a' * 32}")


@pytest.mark.usefixtures("on_a_cluster")
@pytest.mark.parametrize(
    ("call", "act", "hint"),
    [
        ("open", lacks_a_module, MODULE),
        ("execute", lacks_a_name, MODULE),
        ("start", cannot_be_unpickled, MODULE),
        ("prepare", lacks_a_file, FILE),
    ],
)
def test_the_hint_is_the_line_after_the_error(call: str, act: Callable[[], object], hint: str) -> None:
    report = make_report("t", "count", 1, call, raised(act), None, 0.0)
    first, second, *_ = report.render().splitlines()
    assert report.text in first
    assert second == f"  {hint}"


@pytest.mark.usefixtures("on_a_cluster")
def test_a_file_that_goes_missing_later_or_another_error_has_no_hint() -> None:
    later = make_report("t", "count", 1, "execute", raised(lacks_a_file), None, 0.0)
    other = make_report("t", "count", 1, "open", ValueError("no"), None, 0.0)
    assert not {MODULE, FILE} & {*later.frames, *other.frames}


def test_without_shipped_files_there_is_no_hint() -> None:
    report = make_report("t", "count", 1, "open", raised(lacks_a_module), None, 0.0)
    assert MODULE not in report.frames
