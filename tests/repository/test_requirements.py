"""What scripts install is written down with hashes, fits setup.cfg, and is all that they install."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FILES = {path.stem: path for path in (ROOT / "requirements").glob("*.txt")}
#: The extras of setup.cfg that are in each file; "" is Squall itself.
EXTRAS = {
    "build": ["build"],
    "runtime": [""],
    "test": ["", "build", "test", "sql"],
    "spark": ["", "spark"],
    "dev": [
        "",
        "build",
        "test",
        "spark",
        "sql",
        "postgres",
        "parquet",
        "kafka",
        "avro",
        "json-schema",
        "protobuf",
        "s3",
        "redis",
        "rabbitmq",
        "nats",
        "mqtt",
        "http",
        "aws",
        "dev",
    ],
}
ENTRY = re.compile(
    r"^([A-Za-z0-9][\w.-]*)==(\S+)(?: ; (.+?))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)
#: Releases with known vulnerabilities.
REFUSED = {"h11": "0.15", "starlette": "1.0.0", "pynacl": "1.6.1"}


def asked(extra: str) -> list[Requirement]:
    """The requirements in setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    text = setup["options.extras_require"][extra] if extra else setup["options"]["install_requires"]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Requirement(line) for line in lines if not line.startswith("squall[")]


def locked(name: str) -> dict[str, set[str]]:
    """The releases in a file, by package."""
    found: dict[str, set[str]] = {}
    for entry in ENTRY.finditer(FILES[name].read_text("utf-8")):
        found.setdefault(canonicalize_name(entry[1]), set()).add(entry[2])
    return found


def test_there_is_a_file_for_each_use() -> None:
    assert FILES.keys() == EXTRAS.keys()


@pytest.mark.parametrize("name", EXTRAS)
def test_every_line_names_one_release_and_the_hashes_of_its_files(name: str) -> None:
    text = FILES[name].read_text("utf-8")
    assert re.sub(r"^#.*\n", "", ENTRY.sub("", text), flags=re.M) == ""


@pytest.mark.parametrize("name", EXTRAS)
def test_the_releases_fit_setup_cfg(name: str) -> None:
    releases = locked(name)
    for requirement in (each for extra in EXTRAS[name] for each in asked(extra)):
        found = releases.get(canonicalize_name(requirement.name))
        assert found, f"{requirement} is missing in requirements/{name}.txt: run scripts/lock"
        assert all(requirement.specifier.contains(each) for each in found), f"{requirement}: run scripts/lock"


def test_all_files_have_the_same_releases() -> None:
    every = locked("dev")
    for name in EXTRAS:
        for package, releases in locked(name).items():
            assert package not in every or every[package] <= releases or releases <= every[package], package


@pytest.mark.parametrize("package", REFUSED)
def test_releases_with_known_vulnerabilities_are_not_admitted(package: str) -> None:
    [requirement] = [each for each in asked("") if canonicalize_name(each.name) == package]
    assert not requirement.specifier.contains(REFUSED[package])


@pytest.mark.parametrize("script", ["test", "demo", "wheels"])
def test_scripts_install_nothing_else(script: str) -> None:
    text = (ROOT / "scripts" / script).read_text("utf-8")
    installs = [
        line
        for line in text.splitlines()
        if re.search(r"\bpip (install|wheel)\b|^\s*(install|locked) ", line)
    ]
    assert len(installs) >= 3
    assert [
        line for line in installs if "--no-deps" not in line and not re.match(r"\s*(install|locked) ", line)
    ] == []
    assert "--require-hashes" in text
