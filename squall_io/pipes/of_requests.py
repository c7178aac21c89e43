"""The ends of pipes that are requests over HTTP.

Must not know: topologies.
"""

from __future__ import annotations

from squall_io.pipes.addresses import PipeAddress, WrongAddress
from squall_io.pipes.making import (
    WHOLE,
    SinkEnd,
    SourceEnd,
    made,
    options_of,
)
from topology_api.wording import shown


def received_posts(address: PipeAddress) -> SourceEnd:
    from squall_io.http import HttpSpout

    host, _, port = address.authority.rpartition(":")
    if not host or not port.isdecimal():
        raise WrongAddress(f"{shown(address.text)}: give http://HOST:PORT, the address to listen at")
    path = f"/{address.below}" if address.below else None
    spout = made(HttpSpout, address, host=host.strip("[]"), port=int(port), path=path)
    rows = spout.fields == ("value",) and spout.decode == "json"
    return SourceEnd(spout, None if rows else spout.fields)


def sent_posts(address: PipeAddress) -> SinkEnd:
    from squall_io.http import HttpSink

    own, url = options_of(HttpSink, address)
    if any(name == "fields" for name, _ in own.options):
        sink = made(HttpSink, own, url)
        return SinkEnd(sink, tuple(sink.used()))
    sink = made(HttpSink, own, url, fields=WHOLE)
    return SinkEnd(sink, tuple(name for name in sink.used() if name != WHOLE), WHOLE)
