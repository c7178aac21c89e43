"""Checks what Spark needs on a machine (Java, PySpark and pyarrow in supported versions), with clear errors.

Must not know: sessions, tables.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from topology_api import SquallError

#: The oldest Java that Spark 4 runs on.
OLDEST_JAVA: Final = 17
#: The release of PySpark that Squall is tested with.
PYSPARK: Final = "4.3"
#: Installs PySpark, pandas and pyarrow in matching versions. (No package registry has Squall; packages of that name are other
#: projects.)
INSTALL: Final = "pip install '.[spark]' in the folder of Squall's checkout"
_INSTALL_JAVA: Final = (
    f"install a Java runtime of version {OLDEST_JAVA} or newer, such as Debian's openjdk-17-jre-headless"
)
#: Seconds after which `java -version` is presumed to hang.
_PATIENCE: Final = 30.0
_VERSION: Final = re.compile(r'version "([0-9][^"]*)"')


class NotInstalled(SquallError):
    """Spark cannot run on this machine: something is missing, or of an unsupported version."""


def find_java(environ: Mapping[str, str]) -> Path:
    """Return the Java that Spark will start: the Java in JAVA_HOME if set, else the first on PATH. Raises `NotInstalled`."""
    if home := environ.get("JAVA_HOME", ""):
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK) or java.is_dir():
            raise NotInstalled(
                f"JAVA_HOME is {home!r}, and there is no program {java}: set JAVA_HOME to a Java installation, or unset it"
                " and let Java be found on PATH"
            )
        return java
    if (found := shutil.which("java", path=environ.get("PATH", os.defpath))) is None:
        raise NotInstalled(
            f"Spark needs Java, and there is none: JAVA_HOME is not set and PATH has no java; {_INSTALL_JAVA}"
        )
    return Path(found)


def version_in(text: str) -> int | None:
    """Return the Java release named in the output of `java -version`, if any."""
    if (found := _VERSION.search(text)) is None:
        return None
    numbers = [int(number) for number in re.findall(r"[0-9]+", found.group(1))[:2]]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]  # "1.8.0_292" is Java 8


def java_version(java: Path) -> int:
    """Return the release of a Java program. Raises `NotInstalled` if the program does not run, or names no version."""
    try:
        done = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{java} does not run: {error}; {_INSTALL_JAVA}") from None
    text = (done.stderr + done.stdout).decode(errors="replace")
    if (version := version_in(text)) is None:
        said = next((line for line in text.splitlines() if line.strip()), "nothing")
        raise NotInstalled(f"`{java} -version` does not name a version; it says: {said}; {_INSTALL_JAVA}")
    return version


def require_java(environ: Mapping[str, str]) -> None:
    """Check that there is a Java that Spark runs on. Raises `NotInstalled`."""
    java = find_java(environ)
    if (version := java_version(java)) < OLDEST_JAVA:
        whose = "of JAVA_HOME" if environ.get("JAVA_HOME") else "the first one on PATH"
        raise NotInstalled(
            f"Spark needs Java {OLDEST_JAVA} or newer, and {java} ({whose}) is Java {version}; {_INSTALL_JAVA}, and set"
            " JAVA_HOME to it"
        )


def require_packages() -> None:
    """Check that PySpark and pyarrow are installed in supported versions. Raises `NotInstalled`."""
    problems = []
    for name in ("PySpark", "pyarrow", "pandas"):
        try:
            version = metadata.version(name.lower())
        except metadata.PackageNotFoundError:
            problems.append(f"{name} is not installed")
        else:
            if name == "PySpark" and not _is_ours(version):
                problems.append(f"PySpark is of version {version}, and Squall works with {PYSPARK}.x")
    if problems:
        raise NotInstalled(f"Spark cannot be used from this Python: {'; '.join(problems)}: {INSTALL}")


def _is_ours(version: str) -> bool:
    return version.split(".")[:2] == PYSPARK.split(".")


def spark_home_problem(environ: Mapping[str, str]) -> str | None:
    """Return why SPARK_HOME cannot be used; None if it can, or is not set. PySpark starts the Spark in that folder, so this
    Spark must have PySpark's version.
    """
    if not (home := environ.get("SPARK_HOME", "")):
        return None
    if not (found := sorted(Path(home, "jars").glob("spark-core_*.jar"))):
        return f"SPARK_HOME is {home!r}, where there is no Spark (no jars/spark-core_*.jar): unset it"
    version = found[0].stem.partition("_")[2].partition("-")[2]
    if _is_ours(version):
        return None
    return (
        f"SPARK_HOME is {home!r}, where there is Spark {version}, and Squall works with {PYSPARK}.x: unset it"
    )


def require_spark(environ: Mapping[str, str] = os.environ) -> None:
    """Check that a Spark driver can be started here. Raises `NotInstalled`."""
    require_packages()
    if (problem := spark_home_problem(environ)) is not None:
        raise NotInstalled(problem)
    require_java(environ)
