"""`submit --state @EPOCH` names, per table, the rows of later epochs, which will come again."""

from __future__ import annotations

from pathlib import Path

from local_cluster import LocalCluster
from squall.stores.local import LocalFiles
from squall_cli.packing.later_rows import later_rows
from squall_io.spark import SparkSink
from squall_io.spark.manifest.entries import BatchEntry, encode_entry
from squall_io.spark.manifest.layout import epoch_batch
from tests.local_cluster.test_replaced_state import conf_at
from tests.local_cluster.words_with_state import Count, Pass, Words, words
from topology_api import Topology, TopologyBuilder
from worker.epochs.records import short_lineage
from worker.loop.committed_state import CommittedState
from worker.loop.epoch_store import EpochFiles


def with_sinks(**tables: Path) -> Topology:
    """A topology of the same name with a sink for each of these tables."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words(1))
    for name, path in tables.items():
        builder.set_bolt(name, SparkSink(f"file://{path}", "word string")).shuffle_grouping("words")
    return builder.build()


def committed(table: Path, lineage: str, component: str, epoch: int, rows: int) -> None:
    batch = epoch_batch(lineage, component, epoch)
    entry = BatchEntry(batch, "words", "words-1", component, (1, 0), 1, rows, (), 0.0)
    assert LocalFiles(str(table)).put_if_absent(batch.commit, encode_entry(entry))


def test_each_table_with_rows_of_later_epochs_is_named(tmp_path: Path) -> None:
    conf = conf_at(tmp_path)
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(words(Words(100, 20), Pass(), Count()), conf)
        cluster.advance(3)
    lineage = short_lineage(CommittedState(EpochFiles(str(tmp_path), "words")).view().lineage)
    one, two, alone = (tmp_path / name for name in ("one", "two", "alone"))
    for epoch, rows in ((16, 1000), (17, 100), (18, 10), (21, 1)):
        committed(one, lineage, "store", epoch, rows)
    committed(two, lineage, "other", 17, 5)
    committed(two, "0123456789abcdef", "other", 19, 7)  # of another state
    topology = with_sinks(store=one, other=two, empty=alone)
    text = (
        f"file://{one} has 11 rows of store in 2 batches of the epochs 18 to 21, which were committed after epoch 17: what is"
        " processed again comes there again, beside them"
    )
    assert list(later_rows("@17", topology, conf, here=True)) == [text]
    assert list(later_rows(f"{tmp_path / 'words'}@17", topology, {}, here=True)) == [text]
    assert list(later_rows("@17", topology, conf, here=False)) == []
    assert list(later_rows("@21", topology, conf, here=True)) == []
    assert list(later_rows(str(tmp_path / "words"), topology, {}, here=True)) == []
    assert list(later_rows("@17", words(Words(1), Pass(), Count()), conf, here=True)) == []
    assert not alone.exists(), "looking makes no folder"
