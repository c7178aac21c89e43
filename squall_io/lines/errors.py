"""The errors of spouts that read files: a file that cannot be read, and lines that are left out.

Must not know: file systems, spouts.
"""

from __future__ import annotations

from topology_api import SquallError


class UnreadableFile(SquallError):
    """A file that cannot be read properly: packed in an unsupported way, damaged, or changed."""


class UnreadableLines(UnreadableFile):
    """Lines of a file were left out, because they are too long or cannot be decoded."""
