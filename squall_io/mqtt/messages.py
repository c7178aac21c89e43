"""What topics of MQTT are, how a message becomes the values of a tuple, and which messages a broker does not take.

Must not know: clients, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from squall_io.kit.codecs import Decode, MessageCodec, UnreadableMessage, decoder, format_problem
from topology_api.wording import listed, shown, typed

#: What a tuple can have of a message.
FIELDS: Final = ("value", "topic", "qos", "retain", "properties")
#: The fields of the stream of messages that cannot be read, without the error.
RAW_FIELDS: Final = ("topic", "value")
#: The most bytes of a topic.
_MOST_TOPIC: Final = 65_535
#: What a subscription that is shared begins with.
SHARED: Final = "$share/"
#: Bytes of a packet besides topic and payload, at most: its head, the number, and the length of properties.
PACKET_HEAD: Final = 10
#: Properties of MQTT 5 that a field `properties` has, by the names that paho gives them.
_PROPERTIES: Final = {
    "PayloadFormatIndicator": "payload_format",
    "MessageExpiryInterval": "expiry",
    "ContentType": "content_type",
    "ResponseTopic": "response_topic",
    "CorrelationData": "correlation_data",
    "UserProperty": "user",
}

#: Makes the values of a tuple of a message of paho. Raises UnreadableMessage.
Row = Callable[[Any], tuple[object, ...]]


def filters_of(topics: Sequence[str], group: str | None) -> list[str]:
    """Return what to subscribe to."""
    return [each if group is None else f"{SHARED}{group}/{each}" for each in topics]


def filter_problems(topics: object, group: object) -> Iterator[str]:
    """Yield what is wrong with the topics of a spout, and with its group."""
    names = (topics,) if isinstance(topics, str) else topics
    if not isinstance(names, Sequence) or not names:
        yield f'topics is {typed(topics)}: give a topic, "shop/orders", or a list of topics, with wildcards + and #'
        return
    for name in names:
        if (why := _filter_problem(name)) is not None:
            yield f"topics has {typed(name)}: {why}"
    if group is not None and not (isinstance(group, str) and group and not set(group) & set("/+#\0")):
        yield f"group is {typed(group)}: give a name without '/', '+' and '#', or None"


def _filter_problem(name: object) -> str | None:
    if not isinstance(name, str) or not _fits(name):
        return "give the text of a topic, which is not empty"
    if name.startswith(SHARED):
        return "give the topic alone, and the group with group="
    levels = name.split("/")
    if any("#" in level for level in levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#"):
        return "'#' is a whole level, and the last one"
    if any("+" in level and level != "+" for level in levels):
        return "'+' is a whole level"
    return None


def topic_problem(name: object) -> str | None:
    """Return why messages cannot be sent to a topic; None if they can."""
    if isinstance(name, str) and _fits(name) and not set(name) & set("+#"):
        return None
    return f"{typed(name)} is no topic to write to: it is text without '+' and '#', and not empty"


def _fits(name: str) -> bool:
    try:
        return 0 < len(name.encode()) <= _MOST_TOPIC and "\0" not in name
    except UnicodeEncodeError:
        return False


def row_problems(fields: tuple[object, ...], decode: object) -> Iterator[str]:
    """Yield what is wrong with these arguments of a spout."""
    unknown = [name for name in fields if name not in FIELDS]
    if unknown or not fields or len(set(fields)) < len(fields):
        yield f"fields are {shown(fields)}: give some of {listed(FIELDS)}, each once"
    if (problem := format_problem("decode", decode)) is not None:
        yield problem


def row_of(fields: Sequence[str], decode: str | Decode | MessageCodec) -> Row:
    """Return what makes the values of tuples."""
    read = decoder(decode)
    parts: dict[str, Callable[[Any], object]] = {
        "value": lambda message: read(message.payload),
        "topic": _topic,
        "qos": lambda message: message.qos,
        "retain": lambda message: bool(message.retain),
        "properties": _properties,
    }
    chosen = [parts[field] for field in fields]
    return lambda message: tuple([part(message) for part in chosen])


def raw_of(message: Any) -> tuple[object, ...]:
    """Return topic and payload of a message that cannot be read."""
    try:
        topic = message.topic
    except UnicodeDecodeError:
        topic = None
    return topic, bytes(message.payload)


def _topic(message: Any) -> str:
    try:
        topic: str = message.topic
    except UnicodeDecodeError:
        raise UnreadableMessage("its topic is no text in UTF-8") from None
    return topic


def _properties(message: Any) -> dict[str, object]:
    """Return the properties of MQTT 5 that a message has. `user` is a list of [name, value]."""
    found = getattr(message, "properties", None)
    named = {own: getattr(found, name) for name, own in _PROPERTIES.items() if hasattr(found, name)}
    if "user" in named:
        named["user"] = [list(pair) for pair in named["user"]]
    return named
