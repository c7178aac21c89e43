"""The rules for names: of topologies, components, streams and fields.

Names become znodes, directories, log files, URLs and command line arguments; the rules keep all of these safe. Each function
returns a text about the problem, or None. The caller adds the place.
"""

from __future__ import annotations

from topology_api.wording import typed

MAX_NAME_BYTES = 255  # the limit of file systems for one file name
RESERVED_PREFIX = "__"  # Squall's own streams and components, such as __dead_letters
_FORBIDDEN = "/\\:."  # separators in paths, znodes, -o component:key=value and metric names


def field_problem(name: object) -> str | None:
    """Return the problem with the name of a field, or None. Fields are never paths, so `user.id` is fine."""
    if not isinstance(name, str):
        return f"is {typed(name)}: give a str"
    if not name:
        return "is empty"
    if "\0" in name:
        return f"{name!r} contains a NUL character"
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        return f"{name!r} cannot be encoded as UTF-8"
    if size > MAX_NAME_BYTES:
        return f"{name[:32] + '...'!r} has {size} bytes: at most {MAX_NAME_BYTES} are allowed"
    return None


def name_problem(name: object) -> str | None:
    """Return the problem with the name of a topology, or None."""
    if problem := field_problem(name):
        return problem
    assert isinstance(name, str)
    for character in _FORBIDDEN:
        if character in name:
            return f"{name!r} contains {character!r}: names must not contain any of / \\ : ."
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return f"{name!r} contains a control character"
    if name != name.strip():
        return f"{name!r} begins or ends with white space"
    return None


def id_problem(name: object) -> str | None:
    """Return the problem with the id of a component or of a stream, or None."""
    problem = name_problem(name)
    if problem is None and isinstance(name, str) and name.startswith(RESERVED_PREFIX):
        return f"{name!r} begins with {RESERVED_PREFIX!r}, which is reserved"
    return problem
