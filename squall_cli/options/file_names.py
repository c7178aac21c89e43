"""Arguments and options that name files: the shell completes them.

Must not know: what the files are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes with files and folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes with folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]
