"""Arguments and options that name files: completing them is left to the shell, which knows what is there.

Must not know: what the files are for.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes with files and folders."""
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes with folders."""
    return [CompletionItem(incomplete, type="dir")]
