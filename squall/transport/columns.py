"""Encode and decode the values of a batch, by column.

`pack_rows` returns a list of parts: the first holds the columns, the others hold large contiguous data (bytes, numpy arrays)
without a copy. `unpack_rows` decodes them. Two codecs:

- `pickle`: any Python value that can be pickled comes back equal and of the same type. Unpack only bytes that came over an
  authenticated link. Received tuples never share a list or an object, even if the sent tuples did. A column of values that
  cannot change, or of flat lists, dicts, tuples and plain objects of such values, is pickled as a whole. The values of all
  other columns are pickled row by row (measured for a small dict, packing and unpacking: 1.3 µs a tuple instead of 0.4). Values
  of a class that the started script (`__main__`) defines travel together with the class, which is slow; a class of a module
  travels by name.
- `msgpack`: None, bool, int (of 64 bits, signed or not), float, str, bytes, list, tuple, dict with str or int keys, date and
  datetime (a time zone comes back as its offset), each of exactly that type. Received bytes are never executed.

Columns of texts are joined by NUL, and split again by the receiver (measured, packing and unpacking: 90 instead of 120 ns a
word). Arrays that were writable come back writable. Must not know: frames, what ids mean, sockets.
"""

from __future__ import annotations

import copyreg
import datetime
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from types import NoneType
from typing import Any, Final

import msgspec

from squall.transport.errors import BadFrame, Unencodable
from squall.transport.row_columns import Row, RowColumns, columns_of, from_columns
from squall.unreadable import loads_part_by_part
from topology_api.packing import dumps_by_value
from topology_api.wording import class_name, is_error, message_of

#: Contiguous data from this size on travels as a separate part.
LARGE: Final = 64 * 1024
#: The maximum number of separate parts; further large data stays inside the first part.
MOST_APART: Final = 1000

Part = bytes | bytearray | memoryview
Column = Sequence[Any]

_NUL: Final = "\0"
_TEXT: Final = frozenset({str})
#: Types whose values cannot change, so that it makes no difference whether tuples share a value.
_ATOMS: Final = frozenset(
    {str, int, float, bool, NoneType, bytes, complex, Decimal}
    | {datetime.datetime, datetime.date, datetime.time, datetime.timedelta}
)
_TUPLES: Final = frozenset({tuple})
_FLAT: Final = frozenset({tuple, list})
_DICT: Final = frozenset({dict})


def pack_rows(codec: str, fields: Sequence[str], rows: Sequence[Row] | RowColumns) -> list[Part]:
    """Return the parts that hold these rows. Raises `Unencodable`, which names the value that the codec cannot encode."""
    try:
        return _pack(codec, columns_of(rows))
    except BaseException as error:  # code of the value's class, such as __reduce__, may raise anything
        raise _blame(codec, fields, rows, error) from error


def unpack_rows(codec: str, parts: Sequence[Part], tuples: int, fields: int) -> Any:
    """Return the rows that the parts hold: `tuples` rows of `fields` values each. Raises `BadFrame` if the parts hold
    anything else."""
    try:
        columns = _UNPACK[codec](parts)
        if type(columns) is not list or not {list, tuple, str}.issuperset(map(type, columns)):
            raise BadFrame("a batch whose values are no columns")
        columns = [column.split(_NUL) if type(column) is str else column for column in columns]
        if len(columns) != (fields if tuples else 0) or any(len(column) != tuples for column in columns):
            sizes = [len(column) for column in columns]
            raise BadFrame(f"a batch of {tuples} tuples of {fields} fields with columns of {sizes} values")
    except BadFrame:
        raise
    except BaseException as error:
        raise BadFrame(f"values that {codec!r} cannot decode: {_reason(error)}") from error
    return from_columns(columns, tuples)


def readable_rows(parts: Sequence[Part], tuples: int) -> list[Row]:
    """Return the rows of parts by pickle that `unpack_rows` has refused: with an `Unreadable` in the place of each value that
    cannot be read. Raises an error of any kind if the parts are no rows."""
    large = iter(parts[1:])
    whole, rows = loads_part_by_part(parts[0], map(_writable, large))
    columns = [_without_large_apart(column) for column in whole]
    if rows is not None:
        apart = iter(list(zip(*[loads_part_by_part(row, map(_writable, large)) for row in rows])))
        columns = [next(apart) if column is None else column for column in columns]
    columns = [column.split(_NUL) if type(column) is str else column for column in columns]
    if any(len(column) != tuples for column in columns):
        raise BadFrame(f"a batch of {tuples} tuples with columns of other lengths")
    return list(zip(*columns)) if columns else [()] * tuples


def _pack(codec: str, columns: list[Column]) -> list[Part]:
    try:
        return _PACK[codec](columns)
    except BaseException as error:
        # No other process finds a class of the started script by its name, so it travels with the values.
        if codec != "pickle" or "__main__" not in message_of(error):
            raise
        return _pickle(columns, dumps_by_value)


def _blame(
    codec: str, fields: Sequence[str], rows: Sequence[Row] | RowColumns, error: BaseException
) -> Unencodable:
    """Find the value that cannot be encoded."""
    for position, row in enumerate(rows):
        for name, value in zip(fields, row):
            try:
                _pack(codec, [(value,)])
            except BaseException as cause:
                return Unencodable(position, name, _reason(cause))
    return Unencodable(0, "?", _reason(error))


def _reason(error: BaseException) -> str:
    return str(error) if is_error(error, _NotOfTheSet) else f"{class_name(error)}: {message_of(error)}"


def _joined(column: Column) -> str | None:
    """Join a column of texts to one text; return None if any of the texts contains a NUL."""
    text = _NUL.join(column)
    return text if text.count(_NUL) == len(column) - 1 else None


# --- pickle ---------------------------------------------------------------------------------------------------------------


def _pickle(columns: list[Column], dumps: Callable[..., bytes] = pickle.dumps) -> list[Part]:
    whole: list[Column | None] = []
    apart: list[Column] = []
    shared: set[int] = set()
    for column in columns:
        if (kinds := set(map(type, column))) == _TEXT:
            whole.append(_joined(column) or column)
        elif kinds <= _ATOMS:
            whole.append(_with_large_apart(column) if bytes in kinds else column)
        elif _is_flat(kinds, column) and (kinds == _TUPLES or not _shares(column, shared)):
            whole.append(column)
        else:
            whole.append(None)
            apart.append(column)
    rows: list[bytes] | None = None
    large: list[Part] = []
    large_of_rows: list[Part] = []
    if apart:
        keep = _keeper(large_of_rows)
        rows = [dumps(row, 5, buffer_callback=keep) for row in zip(*apart)]
    body = dumps((whole, rows), 5, buffer_callback=_keeper(large))
    return [body, *large, *large_of_rows]


def _unpickle(parts: Sequence[Part]) -> list[Column]:
    large = iter(parts[1:])
    whole, rows = pickle.loads(parts[0], buffers=map(_writable, large))
    if type(whole) is not list:
        raise BadFrame("a batch whose values are no columns")
    columns = [_without_large_apart(column) for column in whole]
    if rows is not None:
        apart = iter(list(zip(*_unpickled_rows(rows, map(_writable, large)))))
        columns = [next(apart) if column is None else column for column in columns]
    if next(large, None) is not None:
        raise BadFrame("a batch with parts that belong to no value")
    return columns


def _unpickled_rows(rows: Iterable[bytes], large: Iterator[Part]) -> Iterator[Row]:
    for position, row in enumerate(rows):
        try:
            yield pickle.loads(row, buffers=large)
        except BaseException as error:
            raise BadFrame(
                f"the values of tuple {position} of a batch cannot be unpickled: {_reason(error)}"
            ) from error


def _keeper(large: list[Part]) -> Callable[[pickle.PickleBuffer], bool]:
    """Return pickle's callback for buffers: True leaves a buffer inside the pickle, False makes it a separate part."""

    def keep(buffer: pickle.PickleBuffer) -> bool:
        data = buffer.raw()
        if data.nbytes < LARGE or len(large) >= MOST_APART:
            return True
        large.append(data)
        return False

    return keep


def _writable(part: Part) -> Part:
    """Return a received part as a writable buffer; pickle makes an array read-only again if it was read-only when it was
    sent."""
    return bytearray(part) if isinstance(part, bytes) or memoryview(part).readonly else part


def _is_large(value: Any) -> bool:
    return type(value) is bytes and len(value) >= LARGE


def _with_large_apart(column: Column) -> Column:
    if not any(map(_is_large, column)):
        return column
    return [pickle.PickleBuffer(value) if _is_large(value) else value for value in column]


def _without_large_apart(column: Any) -> Any:
    """Turn each separate part back into bytes; no other value of a column is a memoryview."""
    if type(column) is list:
        return [bytes(value) if isinstance(value, memoryview) else value for value in column]
    return column


def _is_flat(kinds: set[type], column: Column) -> bool:
    """Return whether no two of these values can share a mutable object inside them."""
    if kinds <= _FLAT:
        return set(map(type, chain.from_iterable(column))) <= _ATOMS
    if kinds == _DICT:
        values = chain.from_iterable(map(dict.values, column))
        return set(map(type, chain(values, chain.from_iterable(column)))) <= _ATOMS
    if len(kinds) == 1 and _is_array(next(iter(kinds))):
        return not any(value.dtype.hasobject for value in column)
    if all(map(_is_plain, kinds)):
        return set(map(type, chain.from_iterable(vars(value).values() for value in column))) <= _ATOMS
    return False


@lru_cache(maxsize=256)
def _is_array(kind: Any) -> bool:
    """Return whether this is numpy's array type, not a subclass. Such a column is flat, because two arrays over the same memory
    arrive as separate arrays (measured for arrays of 1 KB, packing and unpacking: 2.5 instead of 8.6 µs)."""
    return bool(kind.__module__ == "numpy" and kind.__qualname__ == "ndarray")


@lru_cache(maxsize=256)
def _is_plain(kind: Any) -> bool:
    """Return whether instances are pickled as their `vars` and nothing else (measured: 0.7 instead of 2.7 µs for a
    dataclass)."""
    return (
        kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None)
        and not any(hasattr(kind, name) for name in ("__getnewargs__", "__getnewargs_ex__"))
        and kind not in copyreg.dispatch_table
        and kind.__dictoffset__ != 0
        and not issubclass(kind, (list, dict))
        and not any(vars(base).get("__slots__") for base in kind.__mro__)
    )


def _shares(column: Column, seen: set[int]) -> bool:
    """Return whether a value of the column is in `seen`, or occurs twice; if not, add all values to `seen`."""
    found = set(map(id, column))
    if len(found) < len(column) or not seen.isdisjoint(found):
        return True
    seen |= found
    return False


# --- msgpack --------------------------------------------------------------------------------------------------------------

_TUPLE, _DATETIME, _DATE = 1, 2, 3
_PLAIN: Final = frozenset({NoneType, bool, int, float, str, bytes})
_KEYS: Final = frozenset({str, int})


class _NotOfTheSet(Exception):
    """A value of a type that msgpack does not carry here."""


def _msgpack(columns: list[Column]) -> list[Part]:
    packed: list[Column] = []
    for column in columns:
        if (kinds := set(map(type, column))) == _TEXT:
            packed.append(_joined(column) or column)
        elif kinds <= _PLAIN:
            packed.append(column)
        else:
            packed.append([_marked(value) for value in column])
    return [_ENCODER.encode(packed)]


def _unmsgpack(parts: Sequence[Part]) -> list[Column]:
    if len(parts) != 1:
        raise BadFrame(f"a batch by msgpack in {len(parts)} parts")
    columns: list[Column] = _DECODER.decode(parts[0])
    return columns


def _marked(value: Any) -> Any:
    """Return the value with extensions for types that msgpack lacks. Raises `_NotOfTheSet` for other types."""
    if (kind := type(value)) in _PLAIN:
        return value
    if kind is list:
        return [_marked(item) for item in value]
    if kind is tuple:
        return msgspec.msgpack.Ext(_TUPLE, _ENCODER.encode([_marked(item) for item in value]))
    if kind is dict:
        if not set(map(type, value)) <= _KEYS:
            raise _NotOfTheSet("msgpack carries dicts with keys of str and int only")
        return {key: _marked(item) for key, item in value.items()}
    if kind is datetime.datetime:
        return msgspec.msgpack.Ext(_DATETIME, f"{value.fold}{value.isoformat()}".encode())
    if kind is datetime.date:
        return msgspec.msgpack.Ext(_DATE, value.isoformat().encode())
    raise _NotOfTheSet(
        f"topology.transport.codec is 'msgpack', which carries None, bool, int, float, str, bytes, list, tuple, dict, date and"
        f" datetime; this is a {kind.__module__}.{kind.__qualname__}"
    )


def _unmarked(code: int, data: memoryview) -> Any:
    if code == _TUPLE:
        return tuple(_DECODER.decode(data))
    if code == _DATETIME:
        text = bytes(data).decode()
        return datetime.datetime.fromisoformat(text[1:]).replace(fold=int(text[0]))
    if code == _DATE:
        return datetime.date.fromisoformat(bytes(data).decode())
    raise BadFrame(f"a value of msgpack extension {code}, which is unknown")


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(ext_hook=_unmarked)

_PACK: Final[dict[str, Callable[[list[Column]], list[Part]]]] = {"pickle": _pickle, "msgpack": _msgpack}
_UNPACK: Final = {"pickle": _unpickle, "msgpack": _unmsgpack}
