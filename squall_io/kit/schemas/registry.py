"""A schema registry: the client of Confluent's HTTP API, and what its codecs share.

Schemas never change under their id, so each is asked for once. Must not know: connectors, formats of messages.
"""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from squall_io.kit.codecs import CodecAway, MessageCodec, UnreadableMessage
from squall_io.kit.secrets import resolve, secret_problem, url_problem, user_of
from topology_api import InvalidConfig, SquallError
from topology_api.wording import typed

#: The types of schemas, as the registry names them.
AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
#: The longest answer that is read, in bytes.
_MOST_BYTES: Final = 10 * 2**20
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
#: The registry's number for a schema that is not there.
_NO_SCHEMA: Final = 40403
#: Answers that pass by themselves: the registry, or what is before it, is overloaded or has no leader.
_AWAY: Final = frozenset((408, 429, 500, 502, 503, 504))


class RegistryRefused(SquallError):
    """A schema registry refuses what a codec asks for, and will until something is changed."""


class Reference(msgspec.Struct, frozen=True):
    """Another schema that a schema uses, under a name."""

    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct, frozen=True):
    """A schema as the registry has it."""

    schema: str
    schemaType: str = AVRO
    references: tuple[Reference, ...] = ()

    def asked(self) -> dict[str, Any]:
        """Return it as a request has it. The type AVRO is left out: old registries know no other."""
        found: dict[str, Any] = {"schema": self.schema}
        if self.schemaType != AVRO:
            found["schemaType"] = self.schemaType
        if self.references:
            found["references"] = [msgspec.to_builtins(each) for each in self.references]
        return found


class SchemaRegistry:
    """One registry, as a task uses it. Raises CodecAway while it does not answer, and RegistryRefused.

    url: may name a user. password: of this user. timeout: the most seconds of a request.
    """

    def __init__(self, url: str, password: str | None, timeout: float) -> None:
        parts = urlsplit(url)
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
        self._headers = {"Accept": _TYPE, "Content-Type": _TYPE}
        self._login: str | None = None
        user = user_of(url)
        if user is not None:
            word = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._login = f"Basic {word}"
        self._timeout = timeout
        self._by_id: dict[int, RegisteredSchema] = {}
        self._versions: dict[tuple[str, int], RegisteredSchema] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with an id. Raises UnreadableMessage if there is none."""
        if (known := self._by_id.get(schema_id)) is None:
            answer = self._asked(f"schemas/ids/{schema_id}")
            if isinstance(answer, _Refusal):
                if answer.code != _NO_SCHEMA:
                    raise self._refused(f"schema {schema_id} cannot be read", answer)
                raise UnreadableMessage(f"the registry {self.shown} has no schema {schema_id}")
            known = self._by_id[schema_id] = self._parsed(answer)
        return known

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return a version of a subject."""
        if (known := self._versions.get((subject, version))) is None:
            answer = self._must(
                f"version {version} of subject {subject!r} cannot be read",
                f"subjects/{quote(subject, safe='')}/versions/{version}",
            )
            known = self._versions[subject, version] = self._parsed(answer)
        return known

    def latest(self, subject: str) -> tuple[int, RegisteredSchema]:
        """Return the id and the schema of the last version of a subject."""
        answer = self._must(
            f"subject {subject!r} has no schema that can be read",
            f"subjects/{quote(subject, safe='')}/versions/latest",
        )
        return self._id(answer), self._parsed(answer)

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Register a schema, if it is new, and return its id."""
        what = f"the schema cannot be registered for subject {subject!r}"
        path = f"subjects/{quote(subject, safe='')}/versions"
        return self._id(self._must(what, path, schema.asked()))

    def registered(self, subject: str, schema: RegisteredSchema) -> tuple[int, int]:
        """Return the id and the version of a schema that is registered already."""
        what = f"the schema is not registered for subject {subject!r}"
        answer = self._must(what, f"subjects/{quote(subject, safe='')}", schema.asked())
        version = answer.get("version") if isinstance(answer, dict) else None
        return self._id(answer), version if isinstance(version, int) else 1

    def named(
        self, schema: RegisteredSchema, seen: tuple[str, ...] = ()
    ) -> Iterator[tuple[Reference, RegisteredSchema]]:
        """Yield what a schema refers to, each after what it refers to itself."""
        for each in schema.references:
            if each.name not in seen:
                found = self.version(each.subject, each.version)
                seen = (*seen, each.name)
                yield from self.named(found, seen)
                yield each, found

    # Requests.

    def _must(self, what: str, path: str, body: object = None) -> Any:
        answer = self._asked(path, body)
        if isinstance(answer, _Refusal):
            raise self._refused(what, answer)
        return answer

    def _refused(self, what: str, refusal: _Refusal) -> RegistryRefused:
        advice = ""
        if refusal.status in (401, 403):
            advice = ": check the user in registry= and password=, and the user's rights"
        return RegistryRefused(f"registry {self.shown}: {what}: {refusal.text} ({refusal.code}){advice}")

    def _asked(self, path: str, body: object = None) -> Any:
        """Make a request; return the answer, or the registry's refusal."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.shown}/{path}", data, self._headers)
        if self._login is not None:  # no redirection may take it elsewhere
            request.add_unredirected_header("Authorization", self._login)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                text = answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                try:
                    refusal = _refusal_of(error.code, error.read(65_536))
                except (OSError, http.client.HTTPException) as failure:
                    raise CodecAway(f"registry {self.shown} does not answer: {failure}") from None
            if error.code in _AWAY:
                raise CodecAway(
                    f"registry {self.shown} does not serve: {refusal.text} ({refusal.code})"
                ) from None
            return refusal
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise CodecAway(f"registry {self.shown} does not answer: {reason}") from None
        try:
            return json.loads(text)
        except ValueError:
            raise CodecAway(f"registry {self.shown} answers with something that is no JSON") from None

    def _id(self, answer: object) -> int:
        found = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(found, int):
            raise CodecAway(f"registry {self.shown} answers without the id of a schema")
        return found

    def _parsed(self, answer: object) -> RegisteredSchema:
        try:
            return msgspec.convert(answer, RegisteredSchema)
        except msgspec.ValidationError as error:
            raise CodecAway(
                f"registry {self.shown} answers with something that is no schema: {error}"
            ) from None


class _Refusal(msgspec.Struct, frozen=True):
    """An answer that says no."""

    status: int
    code: int
    text: str


def _refusal_of(status: int, body: bytes) -> _Refusal:
    try:
        found = json.loads(body)
        return _Refusal(status, int(found["error_code"]), " ".join(str(found["message"]).split())[:2000])
    except (ValueError, KeyError, TypeError):
        return _Refusal(status, status, http.client.responses.get(status, "no reason given"))


class RegistryCodec(MessageCodec):
    """What the codecs with a registry share: where it is, and the schema that messages are written with.

    registry: the URL; a user may be in it ("https://app@registry:8081"). password: of the user, as `env:NAME` or `file:PATH`.
    subject: what the schema is registered as; None: "<topic>-value" or "<topic>-key". register: whether the schema is
    registered if it is new; False: it must be there. timeout: the most seconds of a request.
    """

    def __init__(
        self,
        registry: str,
        subject: str | None,
        password: str | None,
        register: bool,
        timeout: float,
        problems: Sequence[str | None] = (),
    ) -> None:
        found = [*_registry_problems(registry, subject, password, timeout), *filter(None, problems)]
        if found:
            raise InvalidConfig(found, type(self).__name__)
        self.registry, self.subject, self.password = registry, subject, password
        self.register, self.timeout = register, timeout

    def opened(self) -> SchemaRegistry:
        """Return the registry. Raises NoSecret."""
        password = None if self.password is None else resolve("password", self.password)
        return SchemaRegistry(self.registry, password, self.timeout)

    def id_of(self, registry: SchemaRegistry, subject: str, schema: RegisteredSchema) -> int:
        """Return the id of the schema that messages are written with."""
        if self.register:
            return registry.register(subject, schema)
        return registry.registered(subject, schema)[0]


def _registry_problems(registry: object, subject: object, password: object, timeout: object) -> Iterator[str]:
    if (problem := url_problem("registry", registry, "password")) is not None:
        yield problem
    elif not str(registry).startswith(("http://", "https://")):
        yield f"registry is {typed(registry)}: give its URL, as http://registry:8081"
    elif (user_of(str(registry)) is None) != (password is None):
        yield "a user in registry= and password= belong together: give both, or neither"
    if password is not None and (problem := secret_problem("password", password)) is not None:
        yield problem
    if subject is not None and not (isinstance(subject, str) and subject):
        yield f"subject is {typed(subject)}: give a name, or None"
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        yield f"timeout is {typed(timeout)}: give seconds, more than 0"


def readable(parse: Callable[[], Any], schema_id: int) -> Any:
    """Return a parsed schema of a message. Raises UnreadableMessage if it cannot be parsed: that concerns this message only."""
    try:
        return parse()
    except (CodecAway, RegistryRefused):
        raise
    except SquallError as error:
        raise UnreadableMessage(f"its schema {schema_id} cannot be used: {error}") from error


def once(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that makes something at its first success, and returns that again."""
    made: list[Any] = []

    def made_once() -> Any:
        if not made:
            made.append(make())
        return made[0]

    return made_once


def text_of_schema(name: str, schema: object) -> tuple[str | None, str | None]:
    """Return a schema in JSON, given as text or as a value, and what is wrong with it."""
    if schema is None:
        return None, None
    if isinstance(schema, str):
        try:
            json.loads(schema)
        except ValueError as error:
            return None, f"{name} is no JSON: {error}"
        return schema, None
    if not isinstance(schema, (Mapping, list)):
        return None, f"{name} is {typed(schema)}: give a dict, or JSON"
    try:
        return json.dumps(schema), None
    except (TypeError, ValueError) as error:
        return None, f"{name} cannot be written as JSON: {error}"
