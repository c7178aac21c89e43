"""On a machine where Spark cannot run, one sentence says what to install."""

from __future__ import annotations

import stat
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from squall.stores.java import java
from squall.stores.java.java import (
    NotInstalled,
    find_java,
    java_version,
    require_java,
    require_packages,
    version_in,
)
from squall.stores.java.jvm import JavaProcess, locale_for_java


def made_up_java(folder: Path, says: str, code: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.13" 2024-10-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_versions_of_java_are_parsed(text: str, version: int | None) -> None:
    assert version_in(text) == version


def test_no_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(
        NotInstalled, match=r"Spark needs Java, and there is none: .* install a Java runtime of version 17"
    ):
        find_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        NotInstalled, match=r"JAVA_HOME is '.*', and there is no program .*/bin/java: set JAVA_HOME"
    ):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    there = made_up_java(tmp_path / "home", 'openjdk version "17.0.1"')
    on_path = made_up_java(tmp_path / "other", 'openjdk version "21.0.1"')
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}) == there
    assert find_java({"PATH": str(on_path.parent)}) == on_path


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    made_up_java(tmp_path, 'java version "1.8.0_292"')
    with pytest.raises(
        NotInstalled, match=r"Spark needs Java 17 or newer, and .*/bin/java \(of JAVA_HOME\) is Java 8;"
    ):
        require_java({"JAVA_HOME": str(tmp_path)})


def test_a_java_with_unusable_output_is_quoted(tmp_path: Path) -> None:
    program = made_up_java(tmp_path, "Error: could not find libjava.so", 1)
    with pytest.raises(NotInstalled, match=r"it says: Error: could not find libjava\.so"):
        java_version(program)


def test_a_java_that_does_not_run_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_bytes(b"\x7fELF no program")
    program.chmod(0o755)
    with pytest.raises(NotInstalled, match=r"/java does not run: "):
        java_version(program)


def test_missing_packages_and_those_of_another_version_are_reported_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(name: str) -> str:
        if name == "pyspark":
            return "3.5.1"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(NotInstalled) as raised:
        require_packages()
    assert str(raised.value) == (
        "Spark cannot be used from this Python: PySpark is of version 3.5.1, and Squall works with 4.3.x; pyarrow is not"
        " installed; pandas is not installed: pip install '.[spark]' in the folder of Squall's checkout"
    )


def test_a_spark_home_of_another_version_is_reported(tmp_path: Path) -> None:
    problem = java.spark_home_problem({"SPARK_HOME": str(tmp_path)})
    assert problem is not None and "there is no Spark" in problem
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").touch()
    problem = java.spark_home_problem({"SPARK_HOME": str(tmp_path)})
    assert problem is not None and "Spark 3.5.1, and Squall works with 4.3.x" in problem
    (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").rename(tmp_path / "jars" / "spark-core_2.13-4.3.0.jar")
    assert java.spark_home_problem({"SPARK_HOME": str(tmp_path)}) is None
    assert java.spark_home_problem({}) is None


@pytest.mark.parametrize(
    ("file_names", "codeset", "added"),
    [
        ("utf-8", "UTF-8", {}),  # the usual setup
        ("utf-8", "ANSI_X3.4-1968", {"LC_ALL": "C.UTF-8"}),  # LC_ALL=C, where Python still uses UTF-8
        ("iso8859-1", "ISO-8859-1", {}),
    ],
)
def test_java_encodes_file_names_like_this_python(
    file_names: str, codeset: str, added: dict[str, str]
) -> None:
    assert locale_for_java(file_names, codeset) == added


def test_a_java_that_never_stops_writing_is_quoted_nevertheless() -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    java = JavaProcess(process)
    try:

        class Line(str):
            """One that is followed by another before the first can be read."""

            __slots__ = ()

            def strip(self, chars: str | None = None) -> str:
                java.lines.append("more")
                return super().strip(chars)

        java.lines.extend(Line(text) for text in ("starting", "Exception: no memory"))
        assert java.why() == "Exception: no memory"
        assert java.logged() == ""
    finally:
        java.stop()
