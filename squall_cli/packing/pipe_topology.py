"""The topology of `squall pipe`: from two addresses, or from a file that lists pipes.

A function of the user is loaded as `squall run` loads a topology, so it is shipped with a submission.
Must not know: the use of the topology.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from squall_cli.packing.loading import (
    CannotLoad,
    WrongSource,
    find,
    import_file,
    import_module,
    parse_source,
)
from squall_io.pipes import Pipe, topology_of
from topology_api.errors import SquallError
from topology_api.topology import Topology
from topology_api.wording import listed, nearest, typed

#: What a file of pipes may have.
KEYS: Final = ("name", "conf", "pipes")
#: What each of its pipes may have.
PIPE_KEYS: Final = ("source", "sink", "map", "tasks")


def topology(source: str, sink: str = "", map: str = "", tasks: str = "1") -> Topology:
    """Return the topology from a source to a sink, or, with a file instead of the source, of the pipes that it lists."""
    if not sink:
        return topology_of_file(Path(source))
    return topology_of([pipe_of({"source": source, "sink": sink, "map": map or None, "tasks": int(tasks)})])


def topology_of_file(path: Path) -> Topology:
    """Return the topology of a YAML file. Raises CannotLoad."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CannotLoad(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    except yaml.YAMLError as error:
        raise CannotLoad(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    problems = problems_of(found)
    if problems:
        raise CannotLoad("\n".join(f"{path}: {problem}" for problem in problems))
    try:
        pipes = [pipe_of(each, path.parent) for each in found["pipes"]]
        return topology_of(pipes, found.get("name", path.stem), found.get("conf"))
    except SquallError as error:
        raise CannotLoad(f"{path}: {error}") from None


def problems_of(found: Any) -> list[str]:
    """Return what is wrong with the content of a file of pipes."""
    if not isinstance(found, dict) or not isinstance(found.get("pipes"), list) or not found["pipes"]:
        return ["it has no list `pipes`, whose entries have `source` and `sink`"]
    problems = unknown(found, KEYS, "it")
    if not isinstance(found.get("name", ""), str):
        problems.append(f"name is {typed(found['name'])}: give text")
    if not isinstance(found.get("conf") or {}, dict):
        problems.append(f"conf is {typed(found['conf'])}: give names of options with their values")
    for number, each in enumerate(found["pipes"], 1):
        what = f"pipe {number}"
        if not isinstance(each, dict):
            problems.append(f"{what} is {typed(each)}: give source: and sink:")
            continue
        problems += unknown(each, PIPE_KEYS, what)
        for key in ("source", "sink"):
            if not isinstance(each.get(key), str):
                problems.append(f"{what} has no {key}: give an address, such as file:/var/log/app.log")
        if not isinstance(each.get("map") or "", str):
            problems.append(f"map of {what} is {typed(each['map'])}: give FILE:NAME")
    return problems


def unknown(found: dict[Any, Any], known: tuple[str, ...], what: str) -> list[str]:
    """Return a sentence for each unknown key."""
    return [
        f"{what} has {key!r}, and may have {listed(known)}{nearest(str(key), known)}"
        for key in found
        if key not in known
    ]


def pipe_of(given: dict[str, Any], folder: Path | None = None) -> Pipe:
    """Return a pipe, with its function. `folder`: where a relative path of its map begins."""
    function = None
    if text := given.get("map"):
        function = function_of(text, folder)
    return Pipe(given["source"], given["sink"], function, given.get("tasks", 1))


def function_of(text: str, folder: Path | None = None) -> Any:
    """Return the function that FILE:NAME names. Raises WrongSource or CannotLoad."""
    if ":" not in text:
        raise WrongSource(f"--map {text}: give FILE:NAME, the function NAME of the file")
    if folder is not None and text.partition(":")[0].endswith(".py"):
        text = str(folder / text)
    source = parse_source(text)
    value = find(source, import_module(source) if source.file is None else import_file(source))
    if not callable(value):
        raise CannotLoad(
            f"{source.name!r} in {source.shown} is {typed(value)}: it must be a function from a row to a row"
        )
    return value
