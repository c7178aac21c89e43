"""NatsSink: a bolt that publishes a message for each tuple to a subject that a stream of JetStream keeps.

    builder.set_bolt("publish", NatsSink("orders.new", url="nats://broker")).shuffle_grouping("orders")

Must not know: clients, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from squall_io.kit.codecs import Encode, MessageCodec, format_problem
from squall_io.kit.payloads import chosen_of, chosen_problems, missing_fields, used_names
from squall_io.kit.publishing import Publisher, PublishingSink
from squall_io.kit.server_address import ServerAddress, server_problems
from squall_io.nats.spout import credentials_problems
from squall_io.nats.subjects import FORM, subject_problem
from topology_api import InvalidConfig
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context, Fields, Tuple


class NatsSink(PublishingSink):
    """Publishes a message for each tuple. Needs the extra `nats`.

    A tuple is acked when a stream has stored its message, so that each message is there at least once, and with `message_id`
    once within the time for which the stream remembers ids.

    subject: the subject, or a function that can be imported, from the tuple to its subject. A stream must keep it.
    url: a server, "nats://HOST:PORT", or "tls://HOST:PORT" for TLS;
        with a user, "nats://USER@HOST". The port is 4222 by default.
    fields: the field that is the payload (None in it makes an empty one), or a list of fields, which are written as one object.
        None: an object of all fields.
    encode: how the payload becomes bytes: "json", "str", "bytes", a function, or a codec with a schema registry.
    message_id: the field whose text names the message (`Nats-Msg-Id`): the stream drops a second one with the same id. None:
        messages have no id.
    headers: the field with a dict of texts; None: no headers.
    password: the password of the user: "env:NAME" or "file:PATH".
    credentials: the path of a file of credentials (JWT and key) on the hosts of workers, instead of a user.
    tls: paths on the hosts of workers: "ca" of the certificates that sign the server's, "certificate" and "key" of this client.
    """

    def __init__(
        self,
        subject: str | Callable[[Tuple], str],
        *,
        url: str,
        fields: str | Sequence[str] | None = None,
        encode: str | Encode | MessageCodec = "json",
        message_id: str | None = None,
        headers: str | None = None,
        password: str | None = None,
        credentials: str | None = None,
        tls: Mapping[str, str] | None = None,
    ) -> None:
        problems = [
            *server_problems(FORM, url, password, tls),
            *credentials_problems(credentials, password, url),
            *chosen_problems(fields),
            *filter(None, [format_problem("encode", encode)]),
        ]
        if not callable(subject) and (problem := subject_problem(subject)) is not None:
            problems.append(f"subject {problem}; or give a function from the tuple to its subject")
        if callable(subject) and isinstance(encode, MessageCodec) and encode.subject is None:
            problems.append("encode has no subject, and subject is a function: give the codec subject=")
        for name, field in (("message_id", message_id), ("headers", headers)):
            if field is not None and not (isinstance(field, str) and field):
                problems.append(f"{name} is {typed(field)}: give the name of a field, or None")
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.subject = subject
        self.server = ServerAddress(url, password, dict(tls or {}))
        self.credentials = credentials
        self.fields = chosen_of(fields)
        self.encode = encode
        self.message_id, self.headers = message_id, headers

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Yield each input that lacks a field."""
        return missing_fields(inputs, self.used_fields())

    def used_fields(self) -> list[str]:
        """Return the fields that arguments name."""
        return used_names(self.fields, self.message_id, self.headers)

    def make_publisher(self, context: Context) -> Publisher:
        """Return the publisher of a task."""
        from squall_io.nats.publishing import NatsPublisher

        return NatsPublisher(self, context)
