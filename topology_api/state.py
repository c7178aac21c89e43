"""The states of a StatefulBolt: class attributes that declare what the bolt keeps for each key.

A declaration only describes: its types, its default value, and how long a value lives. In a running task, the attribute of the
instance is a handle (`worker.state`) that reads and writes the state of the key at hand.
Must not know: how values are kept, encoded or restored.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from topology_api.errors import InvalidTopology, StateError
from topology_api.values import MAX_SECONDS, number_problem
from topology_api.wording import shown, typed

#: The names of the states of all classes. An attribute with another name is no state.
NAMES: Final[set[str]] = set()


class State:
    """The common base of the declarations. `name` is the attribute's name in the bolt's class."""

    #: The number of types that the declaration takes.
    kinds: ClassVar[int] = 1
    #: Whether the state belongs to a key.
    keyed: ClassVar[bool] = True
    #: How a value gets into the state, for messages.
    spelling: ClassVar[str] = "self.{name}.value = {value}"

    def __init__(
        self, *types: Any, default: Any = None, ttl: float | None = None, pickled: bool = False
    ) -> None:
        problems = []
        if len(types) != self.kinds:
            what = "a type" if self.kinds == 1 else "a key type and a value type"
            problems.append(f"it got {len(types)} types: give {what}, such as {self.example()}")
        if ttl is not None and (problem := number_problem(ttl, 0, MAX_SECONDS, "seconds", above=True)):
            problems.append(f"ttl {problem}, or None")
        if not isinstance(pickled, bool):
            problems.append(f"pickled is {shown(pickled)}: give True or False")
        if problems:
            raise InvalidTopology([f"{type(self).__name__}: {problem}" for problem in problems])
        self.name = ""
        self.types = types
        self.default = default
        self.ttl = None if ttl is None else float(ttl)
        self.pickled = pickled

    @classmethod
    def example(cls) -> str:
        """Return a declaration of this kind, for messages."""
        return f"{cls.__name__}({', '.join(('str', 'float')[-cls.kinds :])})"

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name  # one object for two names is a problem of the bolt: see `state_rules`
        NAMES.add(name)

    # These methods raise the error for a use outside a running task.

    def _outside(self, *args: object) -> Any:
        if not self.name:
            raise StateError(
                f"a {type(self).__name__} was made outside the body of a class, such as in prepare: declare it in the class, "
                f"as `times = {self.example()}`"
            )
        raise StateError(
            f"the state {self.name!r} was used outside a running task: use it in prepare or later"
            " (in a test without a topology, use local_cluster.testing.run_bolt)"
        )

    value = property(_outside, _outside)
    __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __len__ = __bool__ = _outside

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._outside()

    def __repr__(self) -> str:
        types = ", ".join(getattr(each, "__name__", str(each)) for each in self.types)
        return f"<{type(self).__name__}({types}) {self.name!r}>"


class ValueState(State):
    """One value for each key: `self.times.value`, `self.times.clear()`.

    type: the type of the value, as msgspec takes it: int, float, str, bytes, bool, datetime, UUID, Decimal, Enum, dataclasses,
        TypedDict, NamedTuple, msgspec.Struct, `list[int]`, `dict[str, float]`, `X | None`, ...
    default: the value of a key that has none. A mutable default is copied for each key.
    ttl: seconds after its last writing at which a value is forgotten; None: never.
    pickled: keep the value as a pickle instead, for types that msgspec cannot encode. A pickle can be read only while its
        classes exist under the same name.
    """

    def __init__(
        self, type: Any, *, default: Any = None, ttl: float | None = None, pickled: bool = False
    ) -> None:
        super().__init__(type, default=default, ttl=ttl, pickled=pickled)


class ListState(State):
    """A list for each key: `self.last.append(x)`, `len(self.last)`, `self.last[0]`, `for x in self.last`, `self.last.clear()`.

    type: the type of the elements. ttl: seconds after which an element is forgotten. pickled: as for ValueState.
    """

    spelling = "self.{name}.append(x)"

    def __init__(self, type: Any, *, ttl: float | None = None, pickled: bool = False) -> None:
        super().__init__(type, ttl=ttl, pickled=pickled)


class MapState(State):
    """A mapping for each key: `self.last["a"] = 1.0`, `self.last.get("a")`, `del self.last["a"]`, `self.last.items()`.

    key_type, value_type: the types of its keys and values. The order of its items has no meaning.
    ttl: seconds after its last writing at which an item is forgotten. pickled: as for ValueState.
    """

    kinds = 2
    spelling = "self.{name}[key] = x"

    def __init__(
        self, key_type: Any, value_type: Any, *, ttl: float | None = None, pickled: bool = False
    ) -> None:
        super().__init__(key_type, value_type, ttl=ttl, pickled=pickled)


class BroadcastState(State):
    """One value for the whole bolt, the same in each of its tasks: `self.rules.value`.

    It can be read in every call, and written only while a tuple is executed that came by `all_grouping`, since all tasks get
    that tuple. type, default, pickled: as for ValueState.
    """

    keyed = False

    def __init__(self, type: Any, *, default: Any = None, pickled: bool = False) -> None:
        super().__init__(type, default=default, pickled=pickled)


def states_of(component: type) -> dict[str, State]:
    """Return the declarations of a class by name, those of its bases first."""
    found: dict[str, State] = {}
    for cls in reversed(component.__mro__):
        for name, value in vars(cls).items():
            if isinstance(value, State):
                found[name] = value
            else:
                found.pop(name, None)  # a subclass uses the name for something else
    return found


def refuse_replacement(bolt: object, name: str, value: object) -> None:
    """Raise StateError if the attribute of a bolt is a state, and the value would replace it."""
    there = vars(bolt).get(name)
    if there is not None and value is there:  # `self.last += [1.0]` assigns what is there
        return
    if (state := _state_at(type(bolt), name)) is not None:
        write = state.spelling.format(name=name, value=shown(value))
        raise StateError(
            f"{type(bolt).__name__}: self.{name} is a {type(state).__name__} of the class, and cannot be replaced by "
            f"{typed(value)}: write {write}{'' if there is not None else ' in execute'}"
        )


def refuse_deletion(bolt: object, name: str) -> None:
    """Raise StateError if the attribute of a bolt is a state."""
    if (state := _state_at(type(bolt), name)) is not None:
        raise StateError(
            f"{type(bolt).__name__}: self.{name} is a {type(state).__name__} of the class, and cannot be deleted: write "
            f"self.{name}.clear()"
        )


def _state_at(component: type, name: str) -> State | None:
    value = next((vars(cls)[name] for cls in component.__mro__ if name in vars(cls)), None)
    return value if isinstance(value, State) else None
