"""Equal keys go to one task: in every process, on every machine, whatever their types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import os
import pickle
import sys
import uuid
import warnings
from collections import namedtuple
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology_api.errors import GroupingError
from worker.routing.key_hash import MAX_DEPTH, UngroupableKey, key_hash

ROOT = Path(__file__).resolve().parents[2]
NAN = float("nan")


class Level(enum.IntEnum):
    LOW = 1


class Bits(enum.IntFlag):
    A = 1
    B = 2


class PlainBits(enum.Flag):
    A = 1
    B = 2


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1  # noqa: PIE796 -- an alias is meant


class Name(str, enum.Enum):
    ANNA = "anna"


class Word(str):
    def encode(self, *_args: object) -> bytes:
        return b"not what == looks at"


class Caseless(str):
    def __eq__(self, other: object) -> bool:
        return str(self).lower() == str(other).lower()

    __hash__ = str.__hash__


Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Place:
    country: str
    city: object
    visits: int = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True)
class Area:
    country: str
    city: object


@dataclasses.dataclass(eq=False)
class ByIdentity:
    name: str


@dataclasses.dataclass
class ByRule:
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByRule) and self.name.lower() == other.name.lower()


class Autumn(dt.tzinfo):
    """A time zone whose hour from 02:00 to 03:00 occurs twice each day: in summer time first, then in winter time."""

    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta | None:
        if when is None:
            return None
        summer = (when.hour, when.fold) < (2, 1)
        return dt.timedelta(hours=2 if summer else 1)

    def dst(self, when: dt.datetime | None) -> dt.timedelta | None:
        return None

    def tzname(self, when: dt.datetime | None) -> str | None:
        return "autumn"


def zone(hours: float) -> dt.timezone:
    return dt.timezone(dt.timedelta(hours=hours))


NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 5)
EQUAL: dict[str, list[Any]] = {
    "one": [
        1,
        1.0,
        True,
        Decimal(1),
        Decimal("1.00"),
        Fraction(1),
        complex(1),
        complex(1, -0.0),
        Level.LOW,
        Bits.A,
    ],
    "zero": [
        0,
        0.0,
        -0.0,
        False,
        Decimal("-0"),
        Decimal("0e999999"),
        Fraction(0),
        complex(-0.0, 0.0),
        Bits(0),
    ],
    "half": [0.5, Decimal("0.5"), Decimal("5e-1"), Fraction(1, 2), complex(0.5, 0)],
    "negative": [-3, -3.0, Decimal("-3.000"), Fraction(-3), complex(-3, 0)],
    "large": [2**80, 2.0**80, Decimal(2**80), Fraction(2**80), complex(2.0**80)],
    "googol": [10**400, Decimal("1e400"), Fraction(10**400)],
    "tiny": [5e-324, Fraction(5e-324), Decimal.from_float(5e-324), complex(5e-324)],
    "infinity": [float("inf"), Decimal("Infinity"), complex("inf")],
    "minus infinity": [float("-inf"), Decimal("-Infinity"), complex("-inf")],
    "complex": [1 + 2j, complex(1.0, 2.0)],
    "flags": [Bits.A | Bits.B, 3, 3.0],
    "text": ["anna", Name.ANNA, Word("anna")],
    "tuple": [(1, "a"), (1.0, Name.ANNA.value[0]), Point(True, "a")],
    "list": [[1, (2,)], [1.0, (Decimal(2),)]],
    "frozenset": [frozenset([1, "a", (2,)]), frozenset([(2.0,), "a", 1.0])],
    "dataclass": [Place("de", 1, visits=4), Place("de", 1.0, visits=9)],
    "instant": [
        NOON.replace(tzinfo=dt.timezone.utc),
        NOON.replace(tzinfo=dt.timezone.utc).astimezone(zone(5.5)),
        NOON.replace(tzinfo=dt.timezone.utc).astimezone(zone(-12)),
        NOON.replace(hour=14, tzinfo=zone(2)),
    ],
    "first instant": [
        dt.datetime.min.replace(tzinfo=dt.timezone.utc),
        dt.datetime(1, 1, 1, 1, tzinfo=zone(1)),
    ],
    "time": [dt.time(12, tzinfo=dt.timezone.utc), dt.time(14, tzinfo=zone(2))],
    "early time": [dt.time(0, 30, tzinfo=zone(1)), dt.time(1, 30, tzinfo=zone(2))],
    "duration": [dt.timedelta(days=1), dt.timedelta(hours=24)],
    "uuid": [uuid.UUID(int=7), uuid.UUID("00000000-0000-0000-0000-000000000007")],
    "alias": [Colour.RED, Colour.CRIMSON],
}


@pytest.mark.parametrize("kind", EQUAL)
def test_equal_keys_hash_alike_whatever_their_types(kind: str) -> None:
    keys = EQUAL[kind]
    assert all(key == keys[0] for key in keys), "the example itself is wrong"
    assert {key_hash(key) for key in keys} == {key_hash(keys[0])}
    assert {key_hash((key, [key])) for key in keys} == {key_hash((keys[0], [keys[0]]))}


def test_different_keys_hash_differently() -> None:
    keys = [values[0] for values in EQUAL.values()]
    keys += [None, "", b"", b"anna", (), [], frozenset(), "1", b"1"]
    keys += [(1,), [1], frozenset([1]), ((1,),), (1, 1)]
    keys += [Colour.GREEN, PlainBits.A, PlainBits.A | PlainBits.B, Area("de", 1), ("de", 1), dt.timedelta(0)]
    keys += [NOON, NOON.date(), NOON.time(), NOON.time().replace(tzinfo=dt.timezone.utc), -1, 2**59, 2 + 1j]
    assert len({key_hash(key) for key in keys}) == len(keys)
    assert all(0 <= key_hash(key) < 2**64 for key in keys)


def test_every_nan_is_one_key() -> None:
    nans = [NAN, -NAN, Decimal("NaN"), Decimal("-NaN12"), Decimal("sNaN"), complex(NAN, 1), complex(1, NAN)]
    assert {key_hash(nan) for nan in nans} == {key_hash(NAN)}
    assert {key_hash(("a", nan)) for nan in nans} == {key_hash(("a", NAN))}
    assert {key_hash(Place("de", nan)) for nan in nans} == {key_hash(Place("de", NAN))}
    assert key_hash(NAN) not in {key_hash(float("inf")), key_hash(0), key_hash(None)}


def test_numbers_of_any_size_are_keys() -> None:
    # Without the residue these would be integers of a billion digits: the test would never end.
    far = {key_hash(Decimal(text)) for text in ("1e999999999", "-1e999999999", "1e-999999999", "7e999999999")}
    assert len(far) == 4
    digits = "123456789" * 1000  # more than int() accepts as text
    assert key_hash(Decimal(digits)) == key_hash(Decimal(digits + "0e-1"))
    assert key_hash(Decimal("9" * 5000)) == key_hash(10**5000 - 1)
    assert key_hash(Decimal("-" + "9" * 5000)) == key_hash(1 - 10**5000)
    assert key_hash(Fraction(1, 2**61 - 1)) == key_hash(Fraction(2, 2 * (2**61 - 1)))  # has no inverse


def test_the_repeated_hour_of_a_zone_is_one_key_as_in_eq() -> None:
    autumn = Autumn()
    first = dt.datetime(2024, 10, 27, 2, 30, tzinfo=autumn)
    again = first.replace(fold=1)
    assert first == again and first.utcoffset() != again.utcoffset()
    assert key_hash(first) == key_hash(again)
    certain = dt.datetime(2024, 10, 27, 1, 30, tzinfo=autumn)
    assert certain == dt.datetime(2024, 10, 26, 23, 30, tzinfo=dt.timezone.utc)
    assert key_hash(certain) == key_hash(dt.datetime(2024, 10, 26, 23, 30, tzinfo=dt.timezone.utc))


def test_a_time_zone_without_an_offset_is_naive() -> None:
    class Unknown(Autumn):
        def utcoffset(self, when: dt.datetime | None) -> dt.timedelta | None:
            return None

    assert key_hash(NOON.replace(tzinfo=Unknown())) == key_hash(NOON)
    assert key_hash(NOON.time().replace(tzinfo=Unknown())) == key_hash(NOON.time())
    assert key_hash(NOON.replace(tzinfo=dt.timezone.utc)) != key_hash(NOON)


def test_any_string_is_a_key_including_lone_surrogates() -> None:
    keys = ["\ud800", "\udfff", "\ud800\udc00", "\U00010000", "é", "e\u0301", "a\0", "a"]
    assert len({key_hash(key) for key in keys}) == len(keys)
    assert key_hash(Word("\ud800")) == key_hash("\ud800")


def test_members_of_a_string_enum_equal_their_strings() -> None:
    if sys.version_info < (3, 11):
        member: Any = Name.ANNA  # as near as possible
    else:
        member = enum.StrEnum("Pet", {"ANNA": "anna"}).ANNA
    assert member == "anna" and key_hash(member) == key_hash("anna")


NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, -1.5, 2.0, float("inf")]),
    st.sampled_from([Decimal(text) for text in ("0", "-0", "1", "0.50", "2e0", "-1.5", "Infinity")]),
    st.fractions(-2, 2, max_denominator=2),
    st.complex_numbers(max_magnitude=2).map(lambda z: complex(round(z.real), round(z.imag))),
    st.sampled_from([*Level, *Bits]),
)
SCALARS = st.one_of(
    NUMBERS,
    st.none(),
    st.sampled_from(["", "a", "anna", Name.ANNA, Word("a"), b"", b"a", Colour.RED, Colour.GREEN]),
    st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 2)),
    st.datetimes(
        dt.datetime(2024, 1, 1),
        dt.datetime(2024, 1, 1, 1),
        timezones=st.sampled_from([None, dt.timezone.utc, zone(1), zone(-0.5), Autumn()]),
    ).map(lambda when: when.replace(minute=when.minute // 30 * 30, second=0, microsecond=0)),
    st.sampled_from([dt.time(1, tzinfo=zone(hours)) for hours in (0, 1, 2)] + [dt.time(0), dt.time(1)]),
    st.sampled_from([dt.timedelta(0), dt.timedelta(hours=24), dt.timedelta(days=1)]),
)
HASHABLE = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(tuple),
        st.builds(Point, inner, inner),
        st.frozensets(inner, max_size=2),
        st.builds(Area, st.sampled_from(["de", "fr"]), inner),
    ),
    max_leaves=4,
)
KEYS = st.one_of(HASHABLE, st.lists(HASHABLE, max_size=2), st.builds(Place, st.just("de"), HASHABLE))


@given(st.lists(KEYS, min_size=2, max_size=30))
def test_keys_that_are_equal_hash_alike(keys: list[object]) -> None:
    for a in keys:
        for b in keys:
            if a == b:
                assert key_hash(a) == key_hash(b), (a, b)


RETYPES: list[Callable[[Any], Any]] = [
    lambda n: Decimal(n),
    lambda n: Fraction(n),
    lambda n: float(n) if float(n) == n else n,
    lambda n: complex(n) if complex(n) == n else n,
    lambda n: int(n),
]


@given(
    st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)), st.sampled_from(RETYPES[:2])
)
def test_a_number_of_another_type_is_the_same_key(number: Any, retype: Callable[[Any], Any]) -> None:
    other = retype(number)
    assert other == number
    assert key_hash(other) == key_hash(number)


@given(st.integers(), st.sampled_from(RETYPES))
def test_an_integer_of_any_type_is_the_same_key(number: int, retype: Callable[[Any], Any]) -> None:
    small = number % 2**53
    assert retype(small) == small
    assert key_hash(retype(small)) == key_hash(small)


@given(st.datetimes(), st.integers(-1439, 1439))
def test_an_instant_is_the_same_key_in_every_zone(when: dt.datetime, minutes: int) -> None:
    when = min(max(when, dt.datetime(2, 1, 1)), dt.datetime(9998, 1, 1)).replace(tzinfo=dt.timezone.utc)
    other = when.astimezone(dt.timezone(dt.timedelta(minutes=minutes)))
    assert other == when
    assert key_hash(other) == key_hash(when)


# -- Values that are no keys


@pytest.mark.parametrize(
    ("key", "type_name", "path"),
    [
        ({1}, "set", ""),
        ({"a": 1}, "dict", ""),
        (bytearray(b"a"), "bytearray", ""),
        (memoryview(b"a"), "memoryview", ""),
        (range(3), "range", ""),
        (object(), "object", ""),
        (ROOT, type(ROOT).__module__ + "." + type(ROOT).__name__, ""),
        ((1, [2, {3}]), "set", "[1][1]"),
        (Place("de", ({},)), "dict", ".city[0]"),
        (frozenset([("a", object())]), "object", "{}[1]"),
        (ByIdentity("a"), f"{__name__}.ByIdentity", ""),
        (ByRule("a"), f"{__name__}.ByRule", ""),
        ([Caseless("a")], f"{__name__}.Caseless", "[0]"),
        (int, "type", ""),
    ],
)
def test_any_other_value_is_an_error_that_names_the_type_and_the_place(
    key: object, type_name: str, path: str
) -> None:
    with pytest.raises(UngroupableKey) as caught:
        key_hash(key)
    assert (caught.value.type_name, caught.value.path) == (type_name, path)
    assert type_name in str(caught.value) and path in str(caught.value)
    assert isinstance(caught.value, GroupingError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ({1}, "frozenset"),
        ({}, "frozenset of its items"),
        (bytearray(), "bytes"),
        (ByIdentity("a"), "eq=False"),
        (ByRule("a"), "its own __eq__"),
        (object(), "dataclass"),
    ],
)
def test_the_error_has_advice(key: object, advice: str) -> None:
    with pytest.raises(UngroupableKey, match=advice):
        key_hash(key)


def test_a_key_that_contains_itself_is_an_error_and_no_crash() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(UngroupableKey, match="nested deeper than 64 levels") as caught:
        key_hash(endless)
    assert len(str(caught.value)) < 300


def test_the_deepest_key_is_as_deep_as_promised() -> None:
    key: object = 1
    for _ in range(MAX_DEPTH):
        key = (key,)
    assert key_hash(key) == key_hash(key)
    for too_deep in ((key,), [key], frozenset([key]), Area("de", key)):
        with pytest.raises(UngroupableKey):
            key_hash(too_deep)


def test_subclasses_of_a_dataclass_are_keys_of_their_own() -> None:
    class Town(Area):
        pass

    assert Town("de", 1) != Area("de", 1)
    assert key_hash(Town("de", 1)) == key_hash(Town("de", True))
    assert key_hash(Town("de", 1)) != key_hash(Area("de", 1))


# -- numpy and the like


@pytest.fixture
def np() -> Any:
    """Import numpy, which the core does not need; skip if it is missing, but not in CI."""
    if os.environ.get("CI") == "true":
        import numpy
    else:
        numpy = pytest.importorskip("numpy")
    return numpy


def test_numpy_scalars_equal_python_values(np: Any) -> None:
    for name in ("int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64", "longdouble",
                 "complex64", "complex128", "clongdouble", "bool_"):  # fmt: skip
        assert key_hash(getattr(np, name)(1)) == key_hash(1), name
    assert key_hash(np.uint64(2**64 - 1)) == key_hash(2**64 - 1)
    assert key_hash(np.int64(-(2**63))) == key_hash(-(2**63))
    assert key_hash(np.float64(0.1)) == key_hash(0.1)
    assert key_hash(np.float32(0.1)) == key_hash(float(np.float32(0.1)))
    assert key_hash(np.longdouble(0.1)) == key_hash(0.1)
    assert key_hash(np.complex128(1 + 2j)) == key_hash(1 + 2j)
    assert key_hash(np.str_("anna")) == key_hash("anna")
    assert key_hash(np.bytes_(b"anna")) == key_hash(b"anna")
    assert key_hash((np.int64(1), [np.str_("a")])) == key_hash((1, ["a"]))


def test_numpy_infinities_and_nans_equal_those_of_python(np: Any) -> None:
    for kind in (np.float16, np.float32, np.float64, np.longdouble):
        assert key_hash(kind("inf")) == key_hash(Decimal("Infinity"))
        assert key_hash(kind("-inf")) == key_hash(float("-inf"))
        assert key_hash(kind("nan")) == key_hash(NAN)
    assert key_hash(np.complex64(complex(0, NAN))) == key_hash(NAN)
    assert key_hash(np.datetime64("NaT", "s")) == key_hash(np.timedelta64("NaT", "s")) == key_hash(NAN)


def test_numpy_times_hash_alike_in_all_units(np: Any) -> None:
    linear = ["h", "m", "s", "ms", "us", "ns"]
    assert (
        len({key_hash(np.datetime64("2024-02-01", unit)) for unit in ["M", "W", "D", *linear][:1] + linear})
        == 1
    )
    assert (
        len({key_hash(np.datetime64("1970-01-01T00:00:01", unit)) for unit in ["s", "ms", "ps", "fs", "as"]})
        == 1
    )
    assert key_hash(np.datetime64("2024-01-04", "W")) == key_hash(np.datetime64("2024-01-04", "D"))
    assert key_hash(np.datetime64("2024", "Y")) == key_hash(np.datetime64("2024-01-01T00", "h"))
    assert key_hash(np.datetime64("2020", "25s")) == key_hash(np.datetime64("2020", "s"))
    assert key_hash(np.datetime64("2024-02-29T12:00:00.000005")) == key_hash(NOON)
    assert key_hash(np.datetime64("2024-02-29", "D")) == key_hash(dt.date(2024, 2, 29))
    assert (
        key_hash(np.timedelta64(86400, "s")) == key_hash(np.timedelta64(1, "D")) == key_hash(dt.timedelta(1))
    )
    assert key_hash(np.timedelta64(2, "Y")) == key_hash(np.timedelta64(24, "M"))
    assert key_hash(np.timedelta64(1, "ns")) != key_hash(np.timedelta64(2, "ns"))


@given(months=st.integers(-40_000, 100_000))
@settings(max_examples=200)
def test_numpy_months_are_counted_as_numpy_counts_them(months: int) -> None:
    numpy = pytest.importorskip("numpy") if os.environ.get("CI") != "true" else __import__("numpy")
    month = numpy.datetime64(months, "M")
    assert key_hash(month) == key_hash(month.astype("datetime64[D]"))


def test_numpy_values_that_are_not_single_comparable_values_are_refused(np: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy will remove times without a unit
        no_unit, no_time = np.timedelta64(5), np.datetime64("NaT")
    assert key_hash(no_time) == key_hash(NAN)
    for key in (np.zeros(2), np.array(1), no_unit, np.void(b"a"), np.zeros(1, "i4,i4")[0]):
        with pytest.raises(UngroupableKey, match=r"numpy\.(ndarray|timedelta64|void)"):
            key_hash(key)


def test_a_not_a_time_that_claims_to_be_a_datetime_is_refused() -> None:
    """pandas.NaT is an instance of datetime that has no year; pandas itself is not needed to see that."""
    namespace = {
        "__module__": "pandas.api.typing",
        "__eq__": lambda _self, _other: False,
        "__ne__": lambda _self, _other: True,
        "__hash__": dt.datetime.__hash__,
        "to_datetime64": lambda _self: None,
    }
    nat = type("NaTType", (dt.datetime,), namespace)(1, 1, 1)
    assert key_hash(nat) == key_hash(NAN)
