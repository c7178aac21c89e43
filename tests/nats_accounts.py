"""Accounts of NATS by signed tokens (JWT), as `nsc` makes them: what a server trusts, and the credentials of one user."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIMITS = {
    "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1,
    "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
}  # fmt: skip
_JETSTREAM = ("mem_storage", "disk_storage", "streams", "consumer")


@dataclass(frozen=True)
class Accounts:
    """settings: for the server's file. credentials: the path of a user's file."""

    settings: str
    credentials: str


def make_accounts(folder: Path) -> Accounts:
    """An operator, an account with JetStream, the system's account, and a user."""
    import nkeys

    operator, account, system, user = (
        _pair(kind)
        for kind in (
            nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER,
        )
    )  # fmt: skip
    without = {name: 0 if name in _JETSTREAM else limit for name, limit in _LIMITS.items()}
    preload = {
        _name(each): _token(operator, each, {"type": "account", "version": 2, "limits": limits})
        for each, limits in ((account, _LIMITS), (system, without))  # the system's account must not have it
    }
    trusted = _token(operator, operator, {"type": "operator", "version": 2})
    settings = (
        f'operator: "{trusted}"\nsystem_account: {_name(system)}\nresolver: MEMORY\nresolver_preload: {{\n'
    )
    settings += "".join(f'  {name}: "{token}"\n' for name, token in preload.items()) + "}\n"
    token = _token(
        account,
        user,
        {"type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1},
    )
    path = folder / "app.creds"
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    return Accounts(settings, str(path))


def _pair(kind: int) -> Any:
    import nkeys

    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), kind))


def _name(pair: Any) -> str:
    return str(pair.public_key.decode())


def _token(issuer: Any, subject: Any, claims: dict[str, Any]) -> str:
    body = {
        "iat": int(time.time()),
        "iss": _name(issuer),
        "name": "test",
        "sub": _name(subject),
        "nats": claims,
    }
    body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
    parts = [_packed({"typ": "JWT", "alg": "ed25519-nkey"}), _packed(body)]
    signed = ".".join(parts)
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def _packed(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
