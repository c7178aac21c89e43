"""Rules for the files that are shipped with a topology: which names an archive of code may contain, and which lines a
requirements file may contain.

The packer checks the rules, so that users know at once; the receiver checks them again, since anyone may send anything.
Must not know: archives, where files are.
"""

from __future__ import annotations

import importlib.machinery
import re
import shlex
import sys
from collections.abc import Collection, Iterator
from typing import Final

from squall.packages.ours import OURS

#: Modules that a worker itself imports: a user's module with such a name, first on the path, would break the worker.
NEEDED: Final = ("cloudpickle", "msgspec", "yaml", "zmq")
#: People write requirements files by hand, so they are small.
MOST_REQUIREMENTS_BYTES: Final = 256 * 1024

#: Options of pip that read other files or folders. pip also accepts abbreviated long options, and short ones without a space
#: before the value.
_SHORT: Final = ("-r", "-c", "-e", "-f")
_LONG: Final = ("--requirement", "--constraint", "--editable", "--find-links")
_FILE_URL: Final = re.compile(r"(?:(?<![\w.-])|(?<=-i))file:", re.IGNORECASE)
#: Patterns for the name in a requirement and for its versions, just precise enough to find typos.
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\]\s*)?")
_VERSION: Final = r"\s*(?:===|==|~=|!=|<=|>=|<|>)\s*[^\s,;()=<>~][^\s,;()]*\s*"
_VERSIONS: Final = re.compile(f"{_VERSION}(?:,{_VERSION})*,?\\s*")
_COMMENT: Final = re.compile(r"(?:^|\s+)#.*$")
_ARCHIVES: Final = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")


def top_names(places: Collection[str]) -> dict[str, str]:
    """Return the modules and packages that an import would find in an archive of these files: name -> its file."""
    tops: dict[str, str] = {}
    suffixes = tuple(importlib.machinery.all_suffixes())
    for place in sorted(places):
        top, slash, rest = place.partition("/")
        if slash:
            if rest.startswith("__init__.") and rest.endswith(suffixes):
                tops[top] = place
        elif top.endswith(suffixes):
            tops[top.partition(".")[0]] = place
    return tops


def problems_of_code(places: Collection[str]) -> dict[str, str]:
    """Return the files that would hide a module of Squall, of its dependencies or of Python: file -> why it cannot be
    shipped."""
    owners = {
        **dict.fromkeys(sys.stdlib_module_names, "Python's standard library has a module of that name"),
        **dict.fromkeys(NEEDED, "Squall itself needs the library of that name"),
        **dict.fromkeys(OURS, "Squall has a package of that name"),
    }
    return {
        place: f"a module named {name!r} cannot be shipped, because {owners[name]};"
        f" rename it, for example to my_{name}, and change its imports"
        for name, place in top_names(places).items()
        if name in owners
    }


def problem_of_requirements(data: bytes) -> str | None:
    """Return why no host can use a requirements file (`it is not UTF-8 text`, `line 3: ...`), or None."""
    if len(data) > MOST_REQUIREMENTS_BYTES:
        return f"it is too long: it may have at most {MOST_REQUIREMENTS_BYTES:,} bytes"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    if "\0" in text:
        return "it holds a zero byte"
    for number, line in _lines(text):
        if _points_to_files(line):
            return (
                f"line {number}: {line!r:.200} points to a file on the submitter's machine, which no host has;"
                " list the packages by name and version (`pip freeze` does), and ship your own as wheels with --wheels DIR"
            )
        if _lacks_a_version(line):
            return (
                f"line {number}: {line!r:.200} is not a requirement that pip reads: versions are named"
                " as in `six==1.16` or `six>=1.10,<2`"
            )
    return None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines as pip reads them: without comments, and joined where a line ends in a backslash. Each joined line comes
    with the number of its first line in the file."""
    number, parts = 0, [""]
    for at, line in enumerate(text.splitlines(), 1):
        number = number or at
        joined = line.endswith("\\") and not line.lstrip().startswith("#")
        parts.append(line[:-1] if joined else line)
        if not joined:
            yield number, _COMMENT.sub("", "".join(parts)).strip()
            number, parts = 0, [""]
    yield number, _COMMENT.sub("", "".join(parts)).strip()


def _points_to_files(line: str) -> bool:
    if _FILE_URL.search(line):
        return True
    try:
        words = shlex.split(line)
    except ValueError:  # an unclosed quote: pip reports it
        words = line.split()
    return any(_reads_files(word) for word in words if word.startswith("-")) or _is_path(_without_rest(line))


def _lacks_a_version(line: str) -> bool:
    """Return whether a name is followed by an invalid version, as in `six==` or `six=1.16`. pip checks everything else."""
    requirement = _without_rest(line)
    name = _NAME.match(requirement)
    versions = requirement[name.end() :] if name is not None else ""
    return versions.startswith(("=", "<", ">", "!", "~")) and _VERSIONS.fullmatch(versions) is None


def _without_rest(line: str) -> str:
    """Return a requirement without its marker and options; return "" for a line that begins with an option."""
    return line.partition(";")[0].partition(" -")[0].strip() if not line.startswith("-") else ""


def _reads_files(option: str) -> bool:
    if (name := option.partition("=")[0]).startswith("--"):
        return len(name) > len("--") and any(each.startswith(name) for each in _LONG)
    return name.startswith(_SHORT)


def _is_path(requirement: str) -> bool:
    """Return whether pip would treat the requirement as a path: it begins with `.` or `~`, has a slash or backslash, or ends
    like the name of an archive."""
    if "://" in requirement:
        return False
    name = requirement.lower()
    return name.startswith((".", "~")) or "/" in name or "\\" in name or name.endswith(_ARCHIVES)
