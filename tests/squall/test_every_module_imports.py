"""Every module of the product can be imported on every Python that Squall supports, without any extra."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "topology_api",
    "squall",
    "nimbus",
    "supervisor",
    "worker",
    "squall_io",
    "local_cluster",
    "squall_cli",
)

#: Libraries of connectors, which the environments of other Pythons do not have.
EXTRAS = ("pyspark", "pyarrow", "pandas")


def modules(package: str) -> list[str]:
    """The names of all modules below a package, except for those that run a program when they are imported."""
    paths = sorted((ROOT / package).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_of_a_package_can_be_imported(package: str) -> None:
    names = modules(package)
    assert len(names) > 5
    for name in names:
        try:
            assert importlib.import_module(name).__doc__, name
        except ModuleNotFoundError as error:
            assert package == "squall_io" and error.name in EXTRAS, f"{name} needs {error.name}"
