"""Runs the fenced blocks of one Markdown document, in order, as a reader would who types them in.

    python tests/repository/document_blocks.py README.md

It is a program of its own, so that a document gets a process and a `__main__` of its own. What a fence's tag
means:

python    run in the document's one namespace; a block whose first line is a comment with only a file's
          name (`# word_count.py`) is also saved under that name, for the commands that follow
sh        run by `bash -eu` (every `squall` and `python` is this installation's)
console   the lines after `$ ` are run like sh, one after another; the text between them shows roughly what a reader
          will see, and is not compared
yaml      parsed, and checked against the options table as a site's file; saved like python
json      parsed
text      not run: output, a drawing, a command for another machine

Another tag, or none, is an error, so that nothing is left untested by accident. The working folder is the
caller's; a failure ends the run with status 1 and names the document and the line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<tag>.*)$")
FILE_NAME = re.compile(r"#\s*(?P<name>[\w./-]+\.\w+)\s*$")


class Failed(Exception):
    """A block did not do what a reader would expect."""


@dataclass(frozen=True)
class Block:
    tag: str
    line: int  # of the block's first line of code in the document, from 1
    code: str


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a document; a fence that is never closed is an error."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        number += 1
        if opening is None:
            continue
        start = number
        while number < len(lines) and lines[number].strip() != opening["ticks"]:
            number += 1
        if number == len(lines):
            raise Failed(f"line {start}: the fence is never closed")
        code = textwrap.dedent("\n".join(lines[start:number])) + "\n"
        yield Block(opening["tag"].strip(), start + 1, code)
        number += 1


def save_if_named(block: Block) -> None:
    named = FILE_NAME.match(block.code.partition("\n")[0])
    if named is not None:
        path = Path(named["name"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, encoding="utf-8")


def run_python(block: Block, document: Path) -> None:
    save_if_named(block)
    # Lines are counted as in the document, so that a traceback shows the document's own text.
    code = compile("\n" * (block.line - 1) + block.code, str(document), "exec")
    exec(code, vars(sys.modules["__main__"]))


def run_shell(block: Block, document: Path) -> None:
    shell(block.code)


def run_console(block: Block, document: Path) -> None:
    commands: list[str] = []
    for line in block.code.splitlines():
        if line.startswith("$ "):
            commands.append(line[2:])
        elif line.startswith("> ") and commands:
            commands[-1] += "\n" + line[2:]
    if not commands:
        raise Failed("a console block without a line that begins with '$ '")
    shell("\n".join(commands))


def shell(commands: str) -> None:
    sys.stdout.flush()
    status = subprocess.run(["bash", "-eu", "-c", commands], stdin=subprocess.DEVNULL, check=False).returncode
    if status != 0:
        raise Failed(f"exit status {status} of:\n{textwrap.indent(commands, '    ')}")


def check_yaml(block: Block, document: Path) -> None:
    from squall.settings import load_site

    save_if_named(block)
    site = Path(".site-of-the-document.yaml")
    site.write_text(block.code, encoding="utf-8")
    load_site(site)


def check_json(block: Block, document: Path) -> None:
    json.loads(block.code)


def show(block: Block, document: Path) -> None:
    """Not run."""


RUN: dict[str, Callable[[Block, Path], None]] = {
    "python": run_python,
    "sh": run_shell,
    "console": run_console,
    "yaml": check_yaml,
    "json": check_json,
    "text": show,
}


def commands_of_this_installation(folder: Path) -> None:
    """Put `python` and `squall` of this Python first on the path."""
    folder.mkdir(exist_ok=True)
    for name, arguments in (("python", ""), ("squall", " -m squall_cli")):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        program.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def run_document(document: Path) -> None:
    commands_of_this_installation(Path(".bin").resolve())
    main = ModuleType("__main__")  # the reader's, not this program's
    main.__dict__["__file__"] = str(document)
    sys.modules["__main__"] = main
    sys.path.insert(0, os.getcwd())
    for block in blocks(document.read_text(encoding="utf-8")):
        try:
            if block.tag not in RUN:
                raise Failed(f"the tag {block.tag!r} is none of {', '.join(RUN)}")
            RUN[block.tag](block, document)
        except Exception as error:
            text = str(error) if isinstance(error, Failed) else traceback.format_exc()
            raise Failed(f"{document}:{block.line}: {text}") from error


def main(document: Path) -> int:
    try:
        run_document(document)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
