"""What a component keeps, as JSON values in its description, and whether another version of it can go on from that.

A *shape* is a type as msgspec encodes its values: `shape_of` makes one, `misfit` compares two. So Nimbus, which never imports a
user's classes, can say whether the values of one type can be read as another one, and a snapshot says what is in it. The rule
is that of `msgspec.msgpack` in its strict mode, as far as it can be decided from the types:

| was | can be read as |
|---|---|
| any type | the same one; one that is a part of a union, such as `T | None`; `Any` |
| int | float |
| list, set, frozenset, tuple of any length | any of these, if the elements can be read |
| tuple of fixed length | the same length, or any of the above |
| dict | dict, if keys and values can be read |
| Enum, Literal | an Enum or Literal that has all its values, or the plain type of these |
| dataclass, Struct, TypedDict | one with the same fields, or fewer, or more that have defaults; each field by these rules |
| Struct with array_like, NamedTuple | the same, where further fields come last and have defaults; a NamedTuple loses none |
| pickled=True | pickled=True, whatever the types: they are not known before a value is opened |

msgspec is imported on first use, so that `import topology_api` stays quick. Must not know: how values are kept, the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from topology_api.committing_sink import CommittingSink
from topology_api.components import Spout
from topology_api.state import State, states_of
from topology_api.state_rules import name_of
from topology_api.stateful import StatefulBolt, key_fields

#: A shape, or a part of one: a name, a list of a kind and its parts, or a dict.
Shape = Any

_ARRAYS: Final = ("list", "set", "frozenset", "elements")
_ENCODED_AS: Final = {str: "str", int: "int", type(None): "None"}
#: Types that have no parts, by the names of their classes in `msgspec.inspect`.
_PLAIN: Final = {
    "AnyType": "Any",
    "NoneType": "None",
    "BoolType": "bool",
    "IntType": "int",
    "FloatType": "float",
    "StrType": "str",
    "BytesType": "bytes",
    "ByteArrayType": "bytes",
    "MemoryViewType": "bytes",
    "DateTimeType": "datetime",
    "DateType": "date",
    "TimeType": "time",
    "TimeDeltaType": "timedelta",
    "UUIDType": "UUID",
    "DecimalType": "Decimal",
    "RawType": "Raw",
    "ExtType": "Ext",
}
_ELEMENTS: Final = {
    "ListType": "list",
    "SetType": "set",
    "FrozenSetType": "frozenset",
    "VarTupleType": "elements",
    "CollectionType": "list",
}
#: What the code raises that reads descriptions of another form: a client sends them, and no release knows those of later ones.
_OTHER_FORM: Final = (KeyError, IndexError, TypeError, ValueError, AttributeError)
_OTHER_RELEASE: Final = "its description is of another version of Squall"
_LIMITS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")


def shape_of(kind: Any) -> dict[str, Shape]:
    """Return the shape of a type that msgspec can keep: {"text": as a programmer writes it, "type": ..., "classes": ...}."""
    try:
        return _cached_shape(kind)
    except TypeError:  # it has no hash
        return _new_shape(kind)


def _new_shape(kind: Any) -> dict[str, Shape]:
    import msgspec

    classes: dict[str, Shape] = {}
    made = _Shapes(classes).part(msgspec.inspect.type_info(kind))
    return {"text": name_of(kind), "type": made, "classes": classes}


_cached_shape = lru_cache(maxsize=1000)(_new_shape)


class _Shapes:
    """Makes the shape of one type. A class is described once, so that it may contain itself."""

    def __init__(self, classes: dict[str, Shape]) -> None:
        self.classes = classes
        self.keys: dict[type, str] = {}

    def part(self, info: Any) -> Shape:
        """Return the shape of a part. `info`: of `msgspec.inspect`."""
        name = type(info).__name__
        if name in _PLAIN:
            made: Shape = _PLAIN[name]
        elif name in _ELEMENTS:
            made = [_ELEMENTS[name], self.part(info.item_type)]
        elif name in ("DictType", "FrozenDictType"):
            made = ["dict", self.part(info.key_type), self.part(info.value_type)]
        elif name == "TupleType":
            made = ["tuple", [self.part(each) for each in info.item_types]]
        elif name == "UnionType":
            return ["union", [self.part(each) for each in info.types]]
        elif name == "LiteralType":
            return ["values", "Literal", list(info.values)]
        elif name == "EnumType":
            return ["values", info.cls.__qualname__, [member.value for member in info.cls]]
        elif name == "Metadata":
            return self.part(info.type)
        else:
            return self.whole_class(info)
        limits = {each: getattr(info, each, None) for each in _LIMITS}
        limits = {each: limit for each, limit in limits.items() if limit is not None}
        return ["limited", made, limits] if limits else made

    def whole_class(self, info: Any) -> Shape:
        """Return the shape of a class with fields."""
        cls = info.cls
        if cls not in self.keys:
            key = self.keys[cls] = f"{cls.__qualname__}#{len(self.keys)}"
            config = getattr(cls, "__struct_config__", None)
            in_order = type(info).__name__ == "NamedTupleType" or bool(getattr(info, "array_like", False))
            sparse = type(info).__name__ == "TypedDictType" or bool(getattr(config, "omit_defaults", False))
            tag = getattr(info, "tag", None)
            self.classes[key] = {
                "name": cls.__qualname__,
                "in_order": in_order,
                "closed": bool(
                    getattr(info, "forbid_unknown_fields", type(info).__name__ == "NamedTupleType")
                ),
                "tag": None if tag is None else [info.tag_field, tag],
                "fields": [
                    [each.encode_name, self.part(each.type), each.required, sparse and not each.required]
                    for each in info.fields
                ],
            }
        return ["class", self.keys[cls]]


def misfit(old: Mapping[str, Shape], new: Mapping[str, Shape]) -> str | None:
    """Return why values of one shape cannot be read as another one, such as "field 'at' of Visit: str cannot be read as int";
    None: they can."""
    try:
        return _Comparison(old["classes"], new["classes"]).part(old["type"], new["type"])
    except _OTHER_FORM:
        return _OTHER_RELEASE


class _Comparison:
    """Compares two shapes."""

    def __init__(self, old: Mapping[str, Shape], new: Mapping[str, Shape]) -> None:
        self.old, self.new = old, new
        #: Pairs of classes that are being compared, or were: a class may contain itself.
        self.known: set[tuple[str, str]] = set()

    def part(self, old: Shape, new: Shape) -> str | None:
        """Return why a part does not fit, or None."""
        if new == "Any" or (old == new and not _has_class(old)):
            return None
        if old != "Any" and new[0] == "union" and old[0] != "union":
            found = [self.part(old, each) for each in new[1]]
            return None if None in found else (found[0] if len(found) == 1 else self.cannot(old, new))
        if old[0] == "union":
            return next(filter(None, (self.part(each, new) for each in old[1])), None)
        if new[0] == "limited":
            same = old[0] == "limited" and old[2] == new[2]
            return self.part(old[1], new[1]) if same else self.cannot(old, new)
        if old[0] == "limited":
            return self.part(old[1], new)
        if old[0] == "values":
            return self.values(old, new)
        if isinstance(old, str) or isinstance(new, str):
            return None if (old, new) == ("int", "float") else self.cannot(old, new)
        return self.with_parts(old, new)

    def with_parts(self, old: Shape, new: Shape) -> str | None:
        """Compare two types that have parts."""
        kind, other = old[0], new[0]
        if kind == other == "class":
            return self.classes(old[1], new[1])
        if kind == other == "dict":
            return self.part(old[1], new[1]) or self.part(old[2], new[2])
        if kind == other == "tuple" and len(old[1]) == len(new[1]):
            return next(filter(None, map(self.part, old[1], new[1])), None)
        if kind == "tuple" and other in _ARRAYS:
            return next(filter(None, (self.part(each, new[1]) for each in old[1])), None)
        if kind in _ARRAYS and other in _ARRAYS:
            return self.part(old[1], new[1])
        return self.cannot(old, new)

    def values(self, old: Shape, new: Shape) -> str | None:
        """Compare an Enum or a Literal with what comes after it."""
        if new[0] == "values":
            gone = [
                each
                for each in old[2]
                if not any(each == value and type(each) is type(value) for value in new[2])
            ]
            return f"{_text(new, self.new)} has no {', '.join(map(repr, gone))}" if gone else None
        plain = [_ENCODED_AS.get(type(each), "?") for each in old[2]]
        return next((self.cannot(old, new) for each in plain if self.part(each, new) is not None), None)

    def classes(self, old_key: str, new_key: str) -> str | None:
        """Compare two classes by their fields."""
        if (old_key, new_key) in self.known:
            return None
        self.known.add((old_key, new_key))
        old, new = self.old[old_key], self.new[new_key]
        name = new["name"]
        if old["in_order"] != new["in_order"] or old["tag"] != new["tag"]:
            return f"{old['name']} and {name} are not encoded in the same way (array_like, tag)"
        if new["in_order"]:
            pairs = list(zip(old["fields"], new["fields"]))
            missing = [each[0] for each in old["fields"][len(new["fields"]) :]]
            added = new["fields"][len(old["fields"]) :]
        else:
            there = {each[0]: each for each in old["fields"]}
            pairs = [(there[each[0]], each) for each in new["fields"] if each[0] in there]
            added = [each for each in new["fields"] if each[0] not in there]
            kept = {each[0] for each in new["fields"]}
            missing = [each for each in there if each not in kept]
        if missing and new["closed"]:
            return f"{name} forbids the field {missing[0]!r}"
        for each in added:
            if each[2]:
                return f"field {each[0]!r} of {name} is new and has no default"
        for was, now in pairs:
            if was[3] and now[2]:
                return f"field {now[0]!r} of {name} may be absent, and has no default now"
            if problem := self.part(was[1], now[1]):
                return f"field {now[0]!r} of {name}: {problem}"
        return None

    def cannot(self, old: Shape, new: Shape) -> str:
        return f"{_text(old, self.old)} cannot be read as {_text(new, self.new)}"


def _has_class(shape: Shape) -> bool:
    return isinstance(shape, (list, tuple)) and (shape[:1] == ["class"] or any(map(_has_class, shape)))


def _text(shape: Shape, classes: Mapping[str, Shape]) -> str:
    if isinstance(shape, str):
        return shape
    kind, *parts = shape
    if kind == "class":
        return str(classes[parts[0]]["name"])
    if kind == "limited":
        limits = ", ".join(f"{name}={limit!r}" for name, limit in parts[1].items())
        return f"{_text(parts[0], classes)} with {limits}"
    if kind == "values":
        return f"Literal[{', '.join(map(repr, parts[1]))}]" if parts[0] == "Literal" else str(parts[0])
    if kind == "union":
        return " | ".join(_text(each, classes) for each in parts[0])
    if kind == "tuple":
        return f"tuple[{', '.join(_text(each, classes) for each in parts[0])}]"
    inside = ", ".join(_text(each, classes) for each in parts)
    return f"tuple[{inside}, ...]" if kind == "elements" else f"{kind}[{inside}]"


# What a component declares.


def declared(state: State) -> dict[str, Shape]:
    """Return what a state is declared as."""
    return declared_as(type(state).__name__, state.types, state.pickled)


def declared_as(kind: str, types: Sequence[Any], pickled: bool) -> dict[str, Shape]:
    """Return a declaration: the kind of state, and its types, of which nothing but the names is known if they are pickled."""
    shapes = [{"text": name_of(each)} if pickled else shape_of(each) for each in types]
    return {"kind": kind, "types": shapes, "pickled": pickled}


def declaration_text(state: Mapping[str, Shape]) -> str:
    """Return a declaration as a programmer writes it."""
    inside = ", ".join(str(each["text"]) for each in state["types"])
    return f"{state['kind']}({inside}{', pickled=True' if state['pickled'] else ''})"


def declaration_misfit(old: Mapping[str, Shape], new: Mapping[str, Shape]) -> str | None:
    """Return why what was saved for one declaration cannot be that of another one, or None."""
    if old["kind"] != new["kind"]:
        return "the kinds of state differ"
    if old["pickled"] != new["pickled"]:
        return "one is pickled and the other is not"
    if old["pickled"]:
        return None
    found = (misfit(was, now) for was, now in zip(old["types"], new["types"]))
    return next(filter(None, found), None)


def keeps_of(component: object) -> dict[str, Shape]:
    """Return what a component keeps over its versions, for its description: a stateful bolt its key and states, a spout its
    class, to which positions belong, a sink that it commits."""
    if isinstance(component, StatefulBolt):
        states = {name: declared(state) for name, state in states_of(type(component)).items()}
        return {"key": list(key_fields(component)), "states": states}
    if isinstance(component, Spout):
        return {"class": type(component).__qualname__}
    if isinstance(component, CommittingSink) and component.keeps_by_default:
        return {"commits": True}
    return {}


def keeping_problems(
    topology: str, component: str, old: Mapping[str, Shape], new: Mapping[str, Shape]
) -> list[str]:
    """Return why a version of a component cannot go on from what another one keeps, with what to do. An empty mapping:
    nothing is known of it, or it keeps nothing."""
    try:
        return [*_keeping_problems(topology, component, old, new)]
    except _OTHER_FORM:
        return [f"component {component!r}: {_OTHER_RELEASE}"]


def _keeping_problems(
    topology: str, component: str, old: Mapping[str, Shape], new: Mapping[str, Shape]
) -> Iterator[str]:
    where = f"component {component!r}"
    was, now = old.get("class"), new.get("class")
    if was is not None and now is not None and was != now:
        yield (
            f"{where}: its position is that of a {was}, and it is a {now} now: give the new spout another name; it begins "
            "at the start of its input"
        )
    if old.get("key") and new.get("key") and list(old["key"]) != list(new["key"]):
        yield (
            f"{where}: its key was ({', '.join(old['key'])}), and is ({', '.join(new['key'])}) now, which no state belongs to: "
            "give the bolt another name; it begins without state"
        )
    if old.get("states") and "states" not in new:
        yield (
            f"{where}: it kept state ({', '.join(old['states'])}), and is no StatefulBolt now: give the bolt another name; "
            "what was saved is kept"
        )
    states = new.get("states", {})
    for name, before in old.get("states", {}).items():
        if name in states and (why := declaration_misfit(before, states[name])):
            yield f"{where}: {misfit_text(topology, component, name, before, states[name], why)}"


def misfit_text(
    topology: str, component: str, name: str, old: Mapping[str, Shape], new: Mapping[str, Shape], why: str
) -> str:
    """Return what is wrong with a state, and what to do."""
    return (
        f"state {name!r} was saved as {declaration_text(old)} and is declared as {declaration_text(new)} now ({why}): give "
        "the state another name (what was saved is kept), or declare it as it was; to remove what was saved, kill the "
        f"topology, type `squall state drop /folder/{topology} {component}.{name}`, and submit again"
    )
