"""The ends of pipes that are tables of databases, and keys and streams of Redis.

Must not know: topologies.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlencode

from squall_io.pipes.addresses import PipeAddress, WrongAddress
from squall_io.pipes.making import (
    WHOLE,
    SinkEnd,
    SourceEnd,
    made,
    options_of,
    with_fields,
)
from topology_api.wording import shown


def sql_table(address: PipeAddress) -> SinkEnd:
    from squall_io.sql import SqlSink

    sink = _of_database(SqlSink, address, "table", "columns")
    return SinkEnd(sink, tuple(sink.columns.values()))


def sql_rows(address: PipeAddress) -> SourceEnd:
    from squall_io.sql import SqlTable

    return with_fields(_of_database(SqlTable, address, "table", "columns", "order_by"))


def postgresql_rows(address: PipeAddress) -> SourceEnd:
    """Return rows of a table if the address names one, else the changes of a publication."""
    from squall_io.postgres import PostgresChanges

    if any(name == "table" for name, _ in address.options):
        return sql_rows(address)
    return with_fields(_of_database(PostgresChanges, address, "slot", "publication"))


def _of_database(component: type, address: PipeAddress, *needed: str) -> Any:
    """Return a connector of a database, whose URL has the options that are no arguments of the connector: the driver's."""
    own, url = options_of(component, address)
    given = {name.partition(".")[0] for name, _ in own.options}
    if missing := [f"{name}=" for name in needed if name not in given]:
        raise WrongAddress(f"{shown(address.text)}: {component.__name__} needs {', '.join(missing)}")
    return made(component, own, url)


def _redis_url(address: PipeAddress) -> tuple[PipeAddress, str, str]:
    """Return an address without the options of the server, the URL of the server, and what follows the database."""
    from squall_io.redis.address import OPTIONS, SENTINEL

    server, _, path = address.place[2:].partition("/")
    master, _, path = path.partition("/") if address.scheme.endswith(SENTINEL) else ("", "", path)
    database, _, key = path.partition("/")
    own = [each for each in address.options if each[0] not in OPTIONS]
    others = [each for each in address.options if each[0] in OPTIONS]
    if not database.isdecimal() or not key:
        raise WrongAddress(
            f"{shown(address.text)}: give the number of the database and a key: redis://HOST:PORT/0/orders"
        )
    url = f"{address.scheme}://{server}/{master}{'/' if master else ''}{database}"
    return (
        address._replace(options=tuple(own)),
        f"{url}{'?' if others else ''}{urlencode(others)}",
        unquote(key),
    )


def redis_streams(address: PipeAddress) -> SourceEnd:
    from squall_io.redis import RedisStreamSpout

    own, url, keys = _redis_url(address)
    spout = made(RedisStreamSpout, own, tuple(keys.split(",")), url=url)
    rows = (
        spout.schema is None
        and spout.fields == ("value",)
        and (spout.field is None or spout.decode == "json")
    )
    return SourceEnd(spout, None if rows else tuple(spout.outputs["default"]))


def redis_keys(address: PipeAddress) -> SinkEnd:
    """Return a sink of keys if the key has fields in braces, else one of a stream: without `fields`, an entry has the whole row
    as JSON."""
    from squall_io.redis import RedisSink, RedisStreamSink

    own, url, key = _redis_url(address)
    if "{" in key:
        sink = made(RedisSink, own, key, url=url)
        return SinkEnd(sink, tuple(sink.used()))
    named = {name for name, _ in own.options}
    if "fields" in named:
        entries = made(RedisStreamSink, own, key, url=url)
        return SinkEnd(entries, tuple(entries.used()))
    given = {} if "field" in named else {"field": WHOLE}
    return SinkEnd(made(RedisStreamSink, own, key, url=url, fields=WHOLE, **given), (), WHOLE)
