"""Another distribution that took one of our package names is reported, with advice, before its code could run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import squall
from squall.packages.distributions import TAKEN_NAMES

CHECK = "from squall.packages.distributions import check_ours; check_ours(); print('all ours')"
BOOM = "raise SystemExit('the code of the other package ran')\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A small installation of Squall: the real check, and packages with nothing but their first docstring."""
    home = tmp_path / "site"
    (home / "squall" / "packages").mkdir(parents=True)
    for name in ("__init__.py", "packages/__init__.py", "packages/distributions.py"):
        shutil.copy(Path(squall.__file__).parent / name, home / "squall" / name)
    for package in TAKEN_NAMES:
        (home / package).mkdir()
        (home / package / "__init__.py").write_text(f'"""Squall\'s {package}."""\n{BOOM}')
    return home


def install(site: Path, name: str, package: str, *, version: str = "4.2.5", editable: bool = False) -> None:
    """Install a distribution whose package must not be imported."""
    (site / package).mkdir(parents=True, exist_ok=True)
    (site / package / "__init__.py").write_text(f"# somebody else's\n{BOOM}")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "top_level.txt").write_text(f"{package}\n")
    record = "" if editable else f"{package}/__init__.py,,\n"
    (info / "RECORD").write_text(f"{record}{info.name}/METADATA,,\n{info.name}/RECORD,,\n")


def run_check(*path: Path, code: str = CHECK) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=environment,
        cwd=path[-1].parent,  # -c puts it first on the path
        capture_output=True,
        text=True,
        timeout=60,
    )


def complaint(*path: Path) -> str:
    result = run_check(*path)
    assert result.returncode == 1, result
    assert "squall.packages.distributions.NotOurs" in result.stderr
    assert "the code of the other package ran" not in result.stderr
    return result.stderr


def test_packages_of_one_installation_are_ours_and_are_not_imported(home: Path) -> None:
    result = run_check(home)
    assert (result.returncode, result.stdout.strip()) == (0, "all ours"), result.stderr


@pytest.mark.parametrize("package", TAKEN_NAMES)
def test_a_distribution_before_ours_on_the_path_is_named(home: Path, tmp_path: Path, package: str) -> None:
    install(tmp_path / "front", f"the-{package}", package)
    text = complaint(tmp_path / "front", home)
    assert f"The package '{package}' that Python finds is not Squall's" in text
    assert str(tmp_path / "front" / package / "__init__.py") in text
    assert f"the-{package} 4.2.5" in text
    assert f"pip uninstall the-{package}" in text
    assert "force-reinstall" not in text, "nothing of ours was overwritten"


def test_a_distribution_installed_over_ours_is_named_and_the_advice_restores_ours(home: Path) -> None:
    install(home, "supervisor", "supervisor")
    text = complaint(home)
    assert "the distribution supervisor 4.2.5" in text
    assert "pip uninstall supervisor" in text
    assert "pip install --force-reinstall --no-deps .  " in text


def test_a_distribution_that_lists_no_files_is_still_named(home: Path, tmp_path: Path) -> None:
    install(tmp_path / "front", "supervisor", "supervisor", editable=True)
    assert "the distribution supervisor 4.2.5" in complaint(tmp_path / "front", home)


def test_the_advice_for_a_users_own_module_of_our_name_is_to_rename_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "worker.py").write_text(BOOM)
    text = complaint(tmp_path / "user", home)
    assert str(tmp_path / "user" / "worker.py") in text
    assert "Rename it" in text
    assert "pip uninstall" not in text


def test_a_users_module_is_not_blamed_on_a_distribution_of_that_name(home: Path, tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "worker.py").write_text(BOOM)
    install(tmp_path / "elsewhere", "worker", "worker")
    text = complaint(tmp_path / "user", tmp_path / "elsewhere", home)
    assert "a file of your own?" in text


def test_a_second_copy_of_squall_first_on_the_path_is_not_taken_for_ours(home: Path, tmp_path: Path) -> None:
    (tmp_path / "copy" / "topology_api").mkdir(parents=True)
    (tmp_path / "copy" / "topology_api" / "__init__.py").write_text('"""Squall, another copy."""\n')
    assert str(tmp_path / "copy" / "topology_api") in complaint(tmp_path / "copy", home)


@pytest.mark.parametrize("what", ["folder", "init"])
def test_a_missing_package_is_named_with_how_to_restore_it(home: Path, what: str) -> None:
    shutil.rmtree(home / "nimbus") if what == "folder" else (home / "nimbus" / "__init__.py").unlink()
    text = complaint(home)
    assert "nimbus" in text
    assert "pip install --force-reinstall --no-deps .  " in text


def test_all_foreign_packages_are_named_at_once(home: Path, tmp_path: Path) -> None:
    install(tmp_path / "front", "supervisor", "supervisor")
    (tmp_path / "front" / "worker.py").write_text(BOOM)
    text = complaint(tmp_path / "front", home)
    assert "'supervisor'" in text
    assert "'worker'" in text


def test_nothing_slow_is_imported_without_a_problem(home: Path) -> None:
    code = f"{CHECK}\nimport sys; print('importlib.metadata' in sys.modules)"
    result = run_check(home, code=code)
    assert result.stdout.splitlines() == ["all ours", "False"], result.stderr
