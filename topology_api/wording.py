"""Functions for error texts: they quote a value, shortened if it is long, and suggest the nearest known name.

Must not know: what is being checked.
"""

from __future__ import annotations

from collections.abc import Iterable

_NAME_OF = type.__dict__["__name__"].__get__
_LONGEST = 80  # characters of a quoted value: an error message must not hold a whole DataFrame


def shown(value: object) -> str:
    """Return the value's repr on one line, cut to a length that suits a message. Never raises."""
    try:
        text = " ".join(repr(value).split()) if not isinstance(value, str) else repr(value)
    except BaseException as error:
        # repr() of a user's class runs the user's code.
        return f"<{class_name(value)} whose repr raises {class_name(error)}>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def class_name(value: object) -> str:
    """Return the name of the value's class. Never runs a user's code, such as that of a metaclass."""
    return str(_NAME_OF(type(value)))


def is_error(error: object, kinds: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
    """Return whether an error is of one of these classes. Unlike `isinstance`, it never runs a user's `__class__`."""
    return issubclass(type(error), kinds)


def message_of(error: BaseException) -> str:
    """Return the error's message. Never raises, whatever the `__str__` of its class does."""
    try:
        return str(error)
    except BaseException as broken:
        return f"(its str() raises {class_name(broken)})"


def typed(value: object) -> str:
    """Return the value and its type: `'4' (str)`."""
    return f"{shown(value)} ({class_name(value)})"


def listed(names: Iterable[object]) -> str:
    """Return `'a', 'b', 'c'`, or `none` for an empty list; a long list is cut to its first 20 names."""
    quoted = [shown(name) for name in names]
    more = f", and {len(quoted) - 20} more" if len(quoted) > 20 else ""
    return (", ".join(quoted[:20]) or "none") + more


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'split'?` if a known name is similar, else an empty string."""
    import difflib  # imported only when there is a problem to report

    folded = {candidate.lower(): candidate for candidate in known if isinstance(candidate, str)}
    found = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[found[0]]!r}?" if found else ""
