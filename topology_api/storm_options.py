"""Storm's options, and what Squall has instead: one table for error texts and for the page docs/coming-from-storm.md.

`scripts/reference_pages.py` writes the page's table. The cells are Markdown; an error shows them as plain text.
Must not know: Squall's own options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

NOTHING: Final = "–"
SAME: Final = "the same"


@dataclass(frozen=True)
class StormOption:
    """A row of the page. storm: Storm's options, each in backticks, perhaps with a value; a name that ends with `*` stands for
    all names that begin so. squall: what Squall has instead. note: what is different, or what to do without such an option."""

    storm: str
    squall: str
    note: str = ""

    @property
    def names(self) -> list[str]:
        """The names of Storm's options."""
        return re.findall(r"`([a-z][\w.*-]*)(?:: [^`]*)?`", self.storm)


STORM_OPTIONS: Final = (
    StormOption("`storm.zookeeper.servers`, `storm.zookeeper.port`", "`squall.zookeeper.servers`", "`host:port,host:port`"),
    StormOption("`storm.zookeeper.root`", "`squall.zookeeper.root`"),
    StormOption("`storm.zookeeper.session.timeout` (ms)", "`squall.zookeeper.session.timeout.secs`"),
    StormOption(
        "`storm.zookeeper.auth.payload`", "`squall.zookeeper.credentials.file`",
        "a file, which keeps the password out of the settings",
    ),
    StormOption(
        "`storm.zookeeper.ssl.*`", "`squall.zookeeper.tls.ca`, `squall.zookeeper.tls.certificate`, `squall.zookeeper.tls.key`",
        "files in PEM; host names are always checked",
    ),
    StormOption(
        "`nimbus.seeds`, `nimbus.host`, `nimbus.thrift.port`", "`nimbus.url`; `squall nimbus --listen HOST:PORT`"
    ),
    StormOption("`storm.local.dir`", "`--state DIR` of each daemon"),
    StormOption("`storm.local.hostname`", "`--advertise URL` of Nimbus, `--host NAME` of a supervisor"),
    StormOption(
        "`supervisor.slots.ports`", "`squall supervisor --slots N`; `supervisor.worker.ports: 6700-6799`",
        "a range, two ports for each worker; without it workers use any free ports",
    ),
    StormOption("`nimbus.supervisor.timeout.secs`", SAME, "30; Storm's default is 60"),
    StormOption(
        "`supervisor.worker.timeout.secs`, `nimbus.task.timeout.secs`", "`topology.worker.timeout.secs`",
        "one value, set for each topology",
    ),
    StormOption(
        "`topology.message.timeout.secs`", "the same name, a different meaning",
        "counted from the last time the tree was kept alive, not from its emission: a tuple that waits in one of Squall's"
        " queues does not time out",
    ),
    StormOption(
        "`topology.workers`, `topology.debug`, `topology.enable.message.timeouts`, `topology.tick.tuple.freq.secs`,"
        " `topology.auto.task.hooks`, `topology.sleep.spout.wait.strategy.time.ms`",
        SAME,
    ),
    StormOption("`topology.max.spout.pending`", SAME, "1000; Storm has no limit by default"),
    StormOption("`topology.acker.executors: 0`", "`topology.acking: false`"),
    StormOption("`topology.executor.receive.buffer.size`", "`topology.queue.size`"),
    StormOption(
        "`topology.backpressure.*`", NOTHING, "always on: a sender has credit for each task that it sends to"
    ),
    StormOption(
        "`topology.kryo.*`, `topology.fall.back.on.java.serialization`", "`topology.transport.codec`",
        "`pickle`, or `msgpack` for a closed set of types",
    ),
    StormOption(
        "`topology.tasks`, `topology.max.task.parallelism`", NOTHING, "the number of tasks is the parallelism"
    ),
    StormOption(
        "`worker.childopts`, `topology.worker.childopts`, `topology.worker.max.heap.size.mb`", "`topology.worker.memory.mb`",
        "limits a worker's resident memory; the service limits all workers of a host ([memory](cluster.md#operating-it))",
    ),
    StormOption(
        "`topology.classpath`, `topology.environment`", "`--requirements`, `--include`",
        "one environment for each list of requirements, built once on each host",
    ),
    StormOption("`topology.stats.sample.rate`", NOTHING, "counters are exact, not sampled"),
    StormOption(
        "`topology.priority`, `topology.scheduler.strategy`, `topology.component.resources.*`, `topology.component.cpu.*`",
        NOTHING, "tasks are spread evenly over workers, and workers over hosts",
    ),
    StormOption(
        "`supervisor.memory.capacity.mb`, `supervisor.cpu.capacity`", "`squall supervisor --slots N`",
        "a host takes as many workers as it has slots",
    ),
    StormOption(
        "`topology.executor.send.buffer.size`, `topology.transfer.buffer.size`, `topology.transfer.batch.size`,"
        " `topology.producer.batch.size`",
        NOTHING, "batches adapt to the load; `topology.queue.size` limits what waits for a task",
    ),
)  # fmt: skip


@cache
def _by_name() -> dict[str, StormOption]:
    return {name: row for row in STORM_OPTIONS for name in row.names}


def names() -> list[str]:
    """Return the names of Storm's options in the table, without those that stand for several."""
    return [name for name in _by_name() if not name.endswith("*")]


def instead_of(name: str) -> str | None:
    """Return what Squall has instead of an option of Storm's, as plain text; None for any other name."""
    known = _by_name()
    row = known.get(name)
    for prefix, each in known.items():
        if prefix.endswith("*") and name.startswith(prefix[:-1]):
            row = each
    if row is None:
        return None
    note = f" ({row.note})" if row.note else ""
    text = f"use {row.squall}{note}" if row.squall != NOTHING else row.note
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "")


def table() -> str:
    """Return the table of the page, in Markdown."""
    rows = [f"| {row.storm} | {row.squall} | {row.note}{' ' if row.note else ''}|" for row in STORM_OPTIONS]
    return "\n".join(["| Storm | Squall | |", "|---|---|---|", *rows]) + "\n"
