"""Writes the pages of docs/ that are generated from the code: API reference, options, the life of a topology, HTTP API.

    python scripts/reference_pages.py        # after a change of docstrings, options or tables

Their content is in docstrings and tables, nowhere else; tests/repository/test_reference_pages.py checks that the
pages are up to date. This script must not know what any of it means.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

#: The modules of the reference, and the order in which a reader wants their names.
MODULES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "topology_api": {
        "Components": ("Spout", "Bolt", "BatchBolt", "Tuple", "Context"),
        "Streams": ("Fields", "Stream"),
        "Topologies": ("TopologyBuilder", "Handle", "BoltDeclarer", "Topology"),
        "Failures and replays": ("Replay", "Failure", "FailTuple"),
        "Extensions": ("Grouping", "Hook"),
        "Errors": (
            "SquallError", "InvalidTopology", "InvalidConfig", "EmitError", "GroupingError", "CannotPack",
            "NameTaken", "NoSuchTopology", "TopologyFailed", "NotYet",
        ),
    },
    "local_cluster": {
        "A cluster on this machine": ("LocalCluster", "TopologyStatus", "ComponentStatus", "WorkerView"),
    },
    "local_cluster.testing": {
        "Testing": (
            "complete_topology", "Completed", "run_bolt", "BoltRun", "TICK", "ScriptedSpout", "Pause",
            "MutatedValue",
        ),
    },
    "squall_io.spark": {
        "Tables": ("SparkSink", "read_committed"),
        "Stored rows as a stream": ("HdfsLines", "CommittedRows"),
        "Replay": ("replay_topology",),
    },
}  # fmt: skip

WRITTEN = "<!-- Written by scripts/reference_pages.py: change what it is made from, and run it again. -->\n\n"
#: Classes that only Squall instantiates.
GIVEN = {"Tuple", "Context", "Handle", "BoltDeclarer", "Completed", "BoltRun"}
FOR_DEVELOPERS = "Only names; each is documented where it is written."
PARAMETER = re.compile(r"^([a-z]\w*(?:, [a-z]\w*)*): (.*)$")


class Verbatim:
    """Makes a signature show an annotation as it was written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def signature(function: Any, *, method: bool) -> str:
    """Return a signature on one line, without `self` and without a return annotation of None."""
    found = inspect.signature(function)
    parameters = list(found.parameters.values())[1 if method else 0 :]
    shown = [
        one.replace(annotation=Verbatim(one.annotation)) if isinstance(one.annotation, str) else one
        for one in parameters
    ]
    returns = found.return_annotation
    if returns in (inspect.Signature.empty, "None", None):
        return str(found.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    return str(found.replace(parameters=shown, return_annotation=Verbatim(str(returns))))


def prose(text: str, indent: str = "") -> Iterator[str]:
    """A docstring in Markdown: paragraphs, and a bullet for each `name: description`."""
    bullets = False
    for line in inspect.cleandoc(text).splitlines():
        entry = PARAMETER.match(line)
        if not line.strip():
            bullets = False
            yield ""
        elif entry is not None:
            if not bullets:
                yield ""
            bullets = True
            names = ", ".join(f"`{name}`" for name in entry[1].split(", "))
            yield f"{indent}- {names}: {entry[2]}"
        elif line.startswith("    ") and not bullets:  # code
            yield indent + line
        elif line.startswith("Raises "):
            bullets = False
            yield ""
            yield indent + line
        else:
            yield f"{indent}{'  ' if bullets else ''}{line.strip()}"


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself, in the order of its source."""
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod | staticmethod):
            yield name, getattr(cls, name)
        elif is_property(member) or inspect.isfunction(member):
            yield name, member


def is_property(member: object) -> bool:
    """Return whether it is a property, also of a compiled class."""
    return isinstance(member, property) or inspect.isgetsetdescriptor(member)


def describe_class(name: str, cls: type) -> Iterator[str]:
    own = "__init__" in vars(cls) or "__new__" in vars(cls)
    parents = ", ".join(base.__name__ for base in cls.__bases__ if base.__module__.split(".")[0] in MODULES)
    takes = signature(cls, method=False) if own and name not in GIVEN else ""
    yield f"### {name}"
    yield ""
    yield f"class `{name}{takes}`" + (f", a {parents}" if parents else "")
    yield ""
    yield from prose(cls.__doc__ or "")
    yield ""
    if any(members(cls)):  # otherwise Markdown appends the members to the list above
        yield "Members:"
        yield ""
    for member_name, member in members(cls):
        if is_property(member):
            yield f"- **`{member_name}`**"
            document = member.__doc__
        else:
            method = not inspect.ismethod(member) and member_name not in static(cls)
            yield f"- **`{member_name}{signature(member, method=method)}`**"
            document = member.__doc__
        yield ""
        yield from prose(document or "", indent="  ")
        yield ""


def static(cls: type) -> set[str]:
    return {name for name, member in vars(cls).items() if isinstance(member, staticmethod)}


def describe(name: str, value: Any) -> Iterator[str]:
    """One name of a module."""
    if inspect.isclass(value):
        yield from describe_class(name, value)
        return
    yield f"### {name}"
    yield ""
    if inspect.isfunction(value):
        yield f"`{name}{signature(value, method=False)}`"
        yield ""
        yield from prose(value.__doc__ or "")
    else:
        yield f"`{name}`: stands for itself, as `{value!r}`."
    yield ""


def describe_module(name: str, module: ModuleType, sections: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    listed = [entry for names in sections.values() for entry in names]
    exported = set(module.__all__)
    if exported != set(listed):
        raise SystemExit(
            f"scripts/reference_pages.py: MODULES and {name}.__all__ differ: {exported ^ set(listed)}"
        )
    yield f"# {name}"
    yield ""
    yield from prose(re.sub(FOR_DEVELOPERS + " ?", "", module.__doc__ or ""))
    yield ""
    for section, names in sections.items():
        yield f"## {section}"
        yield ""
        for entry in names:
            yield from describe(entry, getattr(module, entry))


def tidy(lines: Iterator[str]) -> str:
    """Return the text with single empty lines, and none at the end."""
    text = "\n".join(line.rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def api() -> str:
    parts = [
        tidy(describe_module(name, importlib.import_module(name), sections))
        for name, sections in MODULES.items()
    ]
    return WRITTEN + "\n".join(parts)


def options() -> str:
    from squall.settings import reference_table

    return (
        WRITTEN
        + "# Options\n\nEvery option of Squall. Where each can be set, and which setting wins: see"
        + " [running.md](running.md). Keys that do\nnot begin like ours (`topology.`, `nimbus.`, `supervisor.`,"
        + " `squall.`, `storm.`) are your own: they may hold anything that\nJSON can, and components find them in"
        + " `context.conf`. An unknown key that begins like ours is an error.\n\n"
        + reference_table()
    )


def states() -> str:
    from nimbus.lifecycle import states

    return (
        WRITTEN
        + "# The life of a topology\n\nA topology is in one of these states:\n\n"
        + states.meanings_as_markdown()
        + "\nWhat happens to it is an event. A cell says which state follows; an empty one is refused and changes"
        + " nothing.\n`activate`, `deactivate`, `rebalance` and `kill` are yours, and so is `replace`: it comes with"
        + " `squall submit --replace`.\nThe others are the cluster's own: all tasks placed again, the previous version"
        + " restored, every source ended and all tuples\nprocessed, a crash, the last worker gone. A topology that has to"
        + " run in fewer workers than it wants because slots are missing\nis also rebalanced by the cluster once there are"
        + " more, and so is one with workers on a drained supervisor.\n\n"
        + states.as_markdown()
        + "\n`GONE` is not a state: the name is free again. `(previous)` is the state before the rebalance or the"
        + " replacement.\nA version that takes a name over is another topology with a life of its own, which begins as"
        + " ACTIVE or INACTIVE. Until all\nits workers are up it takes no `rebalance` and no `replace`; if it fails before"
        + " that, the version before comes back.\n"
        + "A topology whose record in ZooKeeper cannot be read is listed as BAD; `kill` removes it.\n"
    )


def http_api() -> str:
    from nimbus.http.openapi import as_markdown

    return WRITTEN + as_markdown()


PAGES = {
    "docs/api.md": api,
    "docs/options.md": options,
    "docs/states.md": states,
    "docs/http-api.md": http_api,
}


def main() -> None:
    for path, write in PAGES.items():
        (ROOT / path).write_text(write(), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
