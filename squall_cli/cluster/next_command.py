"""A command for the user to type next, quoted so that the shell and `squall` accept it whatever the names are.

Must not know: what the commands do.
"""

from __future__ import annotations

from shlex import quote


def to_type(command: str, name: str, *options: str) -> str:
    """`squall logs word-count --file build`, in backquotes. A name that looks like an option follows `--`."""
    words = (*options, "--", name) if name.startswith("-") else (name, *options)
    return f"`squall {' '.join(map(quote, (command, *words)))}`"
