"""Records of manifests with a fitting hash, whatever their content: their envelope, written out again as the commit had it.

Must not know: the contents of records.
"""

from __future__ import annotations

import hashlib
import json


def resealed(data: bytes) -> bytes:
    """A record's JSON text with a fitting hash; any other text unchanged."""
    try:
        inside = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(inside, dict):
        return data
    canonical = json.dumps(inside, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    digest = json.dumps("sha256:" + hashlib.sha256(canonical).hexdigest())
    text = data.decode(json.detect_encoding(data), "surrogatepass").rstrip("\0 \t\r\n")
    comma = "," if inside else ""
    return f'{text[: text.rindex("}")]}{comma}"digest":{digest}}}'.encode("utf-8", "surrogatepass")
