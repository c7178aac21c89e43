"""StatefulBolt: the base class of bolts that keep state for each key.

Like the other base classes it holds nothing and has no constructor. Must not know: how state is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from topology_api.components import Bolt, _task_of
from topology_api.errors import SquallError
from topology_api.state_guard import StateGuard


class StatefulBolt(StateGuard, Bolt):
    """A bolt with state of the key of the tuple at hand. Declare its states as class attributes.

    A call is all or nothing: if `execute` or `on_timer` raises, its changes of state, its timers, its emissions and its calls
    of `ack` have not happened, and only that tuple fails.

    key: the fields that are the key, such as `("sensor",)`. Each input must be grouped by these fields, in this order
        (`fields_grouping`); streams that all tasks get (`all_grouping`) have no key.
    """

    key: str | Sequence[str] = ()

    @property
    def current_key(self) -> Any:
        """The key at hand: the value of the key's field; a tuple of values if the key has several fields.

        Raises StateError outside `execute` and `on_timer`, and for a tuple that came by `all_grouping`.
        """
        return _task_of(self, "current_key").current_key()

    def timer_after(self, seconds: float, *, name: str = "") -> None:
        """Call `on_timer` for the key at hand in `seconds`, by the clock. A timer of the same key and name is replaced.

        Timers survive as state does. When the input ends, timers that are not yet due are dropped.
        """
        _task_of(self, "timer_after").timer_after(seconds, name)

    def cancel_timer(self, *, name: str = "") -> bool:
        """Cancel the timer of the key at hand with this name; return whether there was one."""
        return bool(_task_of(self, "cancel_timer").cancel_timer(name))

    def on_timer(self, name: str, time: float) -> None:
        """Handle a timer that is due. The state of its key is at hand, as in `execute`. May emit, unanchored.

        name: as given to `timer_after`. time: when the timer was due, in seconds of `Context.now()`.
        """
        raise SquallError(
            f"{type(self).__name__} set the timer {name!r}, but has no on_timer(name, time): define it"
        )

    # The problems of keys and inputs are in topology_api.inspection.


def key_fields(bolt: StatefulBolt) -> tuple[str, ...]:
    """Return the fields of a bolt's key."""
    return (bolt.key,) if isinstance(bolt.key, str) else tuple(bolt.key)


def positions_of(key: Iterable[str], index: Mapping[str, int]) -> tuple[int, ...]:
    """Return the positions of the key's fields in a stream. `index`: the position of each field."""
    return tuple(index[name] for name in key)
