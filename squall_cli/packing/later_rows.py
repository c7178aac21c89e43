"""`--state [PATH]@EPOCH`: how many rows the tables of sinks have of later epochs, which will come again.

Must not know: the format of logs and snapshots, how a table is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from squall_cli.options.state_start import kept_state
from squall_cli.terminal.formats import plural
from topology_api.errors import SquallError
from topology_api.topology import Topology


def later_rows(start: str, topology: Topology, conf: Mapping[str, object], here: bool) -> Iterator[str]:
    """Yield a sentence for each table that has rows of epochs after the one with which a topology is to begin, as far as this
    host sees tables and state. Arguments as those of `epoch_problem`."""
    from squall.packages.state_paths import StateStart
    from squall_io.spark.reading.later_epochs import LaterRows, rows_after
    from squall_io.spark.sink.bolt import SparkSink
    from worker.epochs.records import short_lineage

    epoch = StateStart.parse(start).epoch
    sinks = {spec.id: topology.load(spec.id) for spec in topology.bolts}
    spark = {name: sink for name, sink in sinks.items() if isinstance(sink, SparkSink)}
    if epoch is None or not spark:
        return
    with kept_state(start, topology.name, conf, here) as state:
        if state is None:
            return
        try:
            lineage = short_lineage(state.view().lineage)
        except (SquallError, OSError):
            return
    for name, sink in spark.items():
        found: LaterRows | None = rows_after(sink.settings, lineage, name, epoch)
        if found is not None and found.batches:
            yield (
                f"{found.path} has {plural(found.rows, 'row')} of {name} in {plural(found.batches, 'batch', 'batches')} of the"
                f" epochs {found.first} to {found.last}, which were committed after epoch {epoch}: what is processed again"
                " comes there again, beside them"
            )
