"""The error above all others, for the copies of old code: they know nothing of the product.

It goes with them, when the refactoring is done. Must not know: anything.
"""

from __future__ import annotations


class SquallError(Exception):
    """Base of the errors of old code."""
