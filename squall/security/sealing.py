"""The key pairs of daemons. Only the owner of a key pair can open data that is sealed to the pair, and the pair proves its
owner's identity to others.

Each Nimbus and each supervisor has a key pair (X25519) in its state directory, and the public half of the pair in its record.
The pairs have two uses:

- A topology's link keys and the operators' token are in the store as sealed copies, one for each daemon that may have them
  (libsodium's sealed box: anyone can seal, but only the owner of the pair can open).
- An HTTP request from one daemon to another carries a token that only these two can compute: a hash over the purpose of the
  request, keyed with the X25519 secret that both share. The receiver looks up the sender's public half in the store. So
  everyone who may write to the store can add a daemon, and nothing needs to be distributed by hand.

Theory of operation: the header is `Authorization: Squall-Daemon <id of the sender>:<token>`. A token is valid for two daemons
and one direction (the contexts below) as long as both daemons keep their key pairs. Anyone who reads the token on the way can
use it, so between hosts it travels by HTTPS.
Must not know: records, the store, HTTP.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import nacl.exceptions
import nacl.public

from squall.security.private_files import make_private, read_private
from topology_api.errors import SquallError

SUPERVISOR_TO_NIMBUS: Final = "supervisor-to-nimbus"
NIMBUS_TO_SUPERVISOR: Final = "nimbus-to-supervisor"
NIMBUS_TO_NIMBUS: Final = "nimbus-to-nimbus"

#: The first word of the header by which daemons authenticate.
DAEMON_SCHEME: Final = "Squall-Daemon"

_KEY_BYTES: Final = 32
#: The beginning of each seal: its format. The receiver's public key follows, so that receivers recognise their own seals.
_SEAL: Final = b"squall-seal-1\n"


class BadSeal(SquallError):
    """Sealed data that cannot be opened: it is for a different recipient, or damaged."""


class BadKey(SquallError):
    """A text or a file that does not contain a key."""


class KeyPair:
    """The key pair of one daemon. The secret half is written only to its own file, and never shown."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != _KEY_BYTES:
            raise BadKey(f"a secret key is {_KEY_BYTES} bytes long, not {len(secret)}")
        self._key = nacl.public.PrivateKey(secret)
        #: The public half, as a text.
        self.public: str = bytes(self._key.public_key).hex()

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"

    def __reduce__(self) -> str:
        raise TypeError("a key pair is not pickled: it stays where its file is")

    @classmethod
    def make(cls) -> KeyPair:
        """Return a new pair, which is in no file."""
        return cls(bytes(nacl.public.PrivateKey.generate()))

    @classmethod
    def load_or_make(cls, path: Path | str) -> KeyPair:
        """Return the pair in a file. A missing file is created, with a new pair and mode 0600.

        Raises `BadPrivateFile` if others may read the file, `BadKey` if it holds no key.
        """
        what = "the daemon's key pair"
        if (text := read_private(path, what)) is None:
            make_private(path, bytes(nacl.public.PrivateKey.generate()).hex())
            text = read_private(path, what) or ""  # another process may have been first
        try:
            return cls(bytes.fromhex(text))
        except (ValueError, BadKey):
            raise BadKey(
                f"{path} holds no key: restore the file, or remove it and the daemon makes a new key pair"
            ) from None

    def open(self, data: bytes) -> bytes:
        """Return the data that was sealed for this pair; raise `BadSeal` for any other data."""
        if (recipient := sealed_to(data)) != self.public:
            raise BadSeal(f"it is sealed for the key {recipient[:16]}..., not for {self.public[:16]}...")
        try:
            return bytes(nacl.public.SealedBox(self._key).decrypt(data[len(_SEAL) + _KEY_BYTES :]))
        except (nacl.exceptions.CryptoError, ValueError, TypeError):
            raise BadSeal("it cannot be opened: it is damaged, or no seal at all") from None

    def open_texts(self, data: bytes, purpose: str) -> dict[str, str]:
        """Return the texts that `seal_texts` sealed for this pair and that purpose; raise `BadSeal` for any other data."""
        try:
            body = json.loads(self.open(data))
            found, texts = body["purpose"], body["texts"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise BadSeal("what was sealed is not what was expected") from None  # the content is not shown
        if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):
            raise BadSeal("what was sealed is not what was looked for")
        if found != purpose:
            raise BadSeal(f"it was sealed for {found!r:.200}, not for {purpose!r:.200}")
        return texts

    def token_with(self, other_public: str, context: str) -> str:
        """Return a token that only the owners of this pair and the other pair can compute; both compute the same token. Raises
        `BadKey` if `other_public` is not a key."""
        with _read_as_public(other_public):
            other = nacl.public.PublicKey(bytes.fromhex(other_public))
            shared = nacl.public.Box(self._key, other).shared_key()
        both = "\n".join(sorted((self.public, bytes(other).hex())))
        return hashlib.blake2b(
            f"{context}\n{both}".encode(), key=shared, digest_size=32, person=b"squall-daemon"
        ).hexdigest()

    def is_token_of(self, other_public: str, context: str, token: str) -> bool:
        """Return whether this is the token of the owner of the other pair, compared in constant time. False if `other_public`
        is not a key."""
        try:
            expected = self.token_with(other_public, context)
        except BadKey:
            return False
        return hmac.compare_digest(expected.encode(), token.encode("utf-8", "surrogateescape"))


def seal(public: str, data: bytes) -> bytes:
    """Seal bytes so that only the owner of the pair can open them; raise `BadKey` if `public` is not a public key."""
    with _read_as_public(public):
        key = nacl.public.PublicKey(bytes.fromhex(public))
        return _SEAL + bytes(key) + nacl.public.SealedBox(key).encrypt(data)


def seal_texts(public: str, purpose: str, texts: Mapping[str, str]) -> bytes:
    """Seal named texts for one purpose (the id of a topology), so that they are not accepted for a different purpose."""
    return seal(public, json.dumps({"purpose": purpose, "texts": dict(texts)}).encode())


def fingerprint(public: str) -> str:
    """Return 128 bits of the hash of a public key, for people who compare keys; a dash if the text is not a key."""
    try:
        digest = hashlib.sha256(bytes.fromhex(public)).hexdigest()
    except ValueError:
        return "-"
    return ":".join(digest[start : start + 4] for start in range(0, 32, 4)) if public else "-"


def sealed_to(data: bytes) -> str:
    """Return the public key for which data was sealed; raise `BadSeal` if it is not a seal of Squall's."""
    start = len(_SEAL)
    if not data.startswith(_SEAL) or len(data) < start + _KEY_BYTES:
        raise BadSeal(
            "it is not a seal of this Squall's format: all daemons of a cluster should be of one release"
        )
    return data[start : start + _KEY_BYTES].hex()


def daemon_header(own_id: str, token: str) -> str:
    """Return the value of the Authorization header by which a daemon identifies itself."""
    return f"{DAEMON_SCHEME} {quote(own_id, safe='')}:{token}"


def read_daemon_header(value: str) -> tuple[str, str] | None:
    """Return the id and the token in such a header; None if it is not such a header."""
    scheme, _, rest = value.partition(" ")
    name, colon, token = rest.strip().rpartition(":")
    if scheme.lower() != DAEMON_SCHEME.lower() or not (colon and name and token):
        return None
    return unquote(name), token


@contextmanager
def _read_as_public(text: str) -> Iterator[None]:
    """Raise `BadKey` if a text is not a public key: not hex, of the wrong length, or a point of low order."""
    try:
        yield
    except (nacl.exceptions.CryptoError, ValueError, TypeError):
        raise BadKey(f"no public key: {text!r:.80}") from None
