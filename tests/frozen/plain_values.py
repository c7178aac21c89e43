"""Any value as JSON values that tell its types apart: what the frozen fixtures hold, and what the current code is compared by.

| value | as JSON |
|---|---|
| None, bool, int, finite float, text | itself (`1`, `1.0` and `true` are three things in JSON's text) |
| float that is not finite | `{"float": "nan"}` |
| text that is no Unicode | `{"text": <ascii()>}` |
| list, tuple, array, column of ids or rows | a list |
| mapping with texts as keys | an object; with others `{"map": [[key, value], ...]}` |
| set | `{"set": [...]}`, sorted |
| bytes | `{"bytes": <hex>}` |
| data class, msgspec Struct, histogram | `{"#": {<field>: value}}`: its class may be renamed, and it may get fields |
| anything else | `{"other": [<class>, <repr>]}` |

Must not know: which values there are.
"""

from __future__ import annotations

import dataclasses
import json
import math
from array import array
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

FIELDS = "#"
#: Attributes and classes that have been renamed: today's name -> the fixtures'. Bytes contain none of them.
FORMER_NAMES: Final = {
    "writer_id": "seat",
    "BadStateDirectory": "BadState",
}


def former(name: str) -> str:
    """The name that an attribute or a class has in the fixtures."""
    return FORMER_NAMES.get(name, name)


def plain(value: object) -> Any:
    """A value as JSON values."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, str):
        return value if _is_unicode(value) else {"text": ascii(value)}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": bytes(value).hex()}
    if type(value).__name__ in ("Histogram", "LatencyHistogram"):
        return {FIELDS: plain(value.as_dict())}  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            FIELDS: {
                former(field.name): plain(getattr(value, field.name)) for field in dataclasses.fields(value)
            }
        }
    names = getattr(type(value), "__struct_fields__", None)
    if names is not None:
        return {FIELDS: {former(name): plain(getattr(value, name)) for name in names}}
    if isinstance(value, Mapping):
        return _plain_mapping(value)
    if isinstance(value, (list, tuple, array)) or type(value).__name__ in ("IdColumn", "RowColumns", "deque"):
        return [plain(each) for each in value]  # type: ignore[attr-defined]
    if isinstance(value, (set, frozenset)):
        return {"set": sorted((plain(each) for each in value), key=text_of)}
    if isinstance(value, PurePath):
        return str(value)
    return {"other": [former(type(value).__qualname__), repr(value)]}


def _plain_mapping(value: Mapping[Any, Any]) -> Any:
    if all(isinstance(key, str) and _is_unicode(key) for key in value):
        return {key: plain(each) for key, each in value.items()}
    return {"map": sorted(([plain(key), plain(each)] for key, each in value.items()), key=text_of)}


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_of(value: Any) -> str:
    """One text for JSON values: equal texts, equal values of equal types."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def lacking(now: Any, then: Any, path: str = "") -> list[str]:
    """Where today's JSON values differ from the frozen ones. A record may have more fields than it had."""
    if isinstance(then, dict) and isinstance(now, dict):
        if set(then) == {FIELDS} == set(now):
            now, then = now[FIELDS], then[FIELDS]
            missing = [f"{path}.{name} is gone" for name in then if name not in now]
        else:
            missing = [f"{path}.{name} is there on one side" for name in sorted(then.keys() ^ now.keys())]
        both = [name for name in then if name in now]
        return missing + [each for name in both for each in lacking(now[name], then[name], f"{path}.{name}")]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        return [each for at, old in enumerate(then) for each in lacking(now[at], old, f"{path}[{at}]")]
    if text_of(now) == text_of(then):
        return []
    return [f"{path or 'it'} was {text_of(then):.200} and is {text_of(now):.200}"]
