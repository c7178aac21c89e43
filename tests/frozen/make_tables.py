"""Tables and positions of readers to freeze: folders with every kind of record, made by owners of writer ids as sinks do.

Must not know: how they are read.
"""

from __future__ import annotations

import base64
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.frozen import current_tables
from tests.frozen.frozen_data import as_text
from tests.frozen.mutations import tabulate
from tests.frozen.old_code import old
from tests.frozen.plain_values import plain
from tests.frozen.sealed_records import unsealed
from tests.frozen.table_folders import reader_of, value_read

SPARK: Final = "squall_io.spark"
ODD: Final = "wörter/日本 🙂.x"
#: The queries for each folder.
STREAM: Final = ("table", "schema", "state", "summary", "claims", "verification")
RESULT: Final = ("table", "summary", "verification", "versions", "settled")
#: Units about which tasks are asked.
UNITS: Final = [(series, number) for series in ("", "words-1-0.store.0.1", "ü") for number in range(40)]
NAMES: Final = (
    "words-1-0", ODD, "a.b", "x" * 100, "", "a b", "~2e", "words-1-0.store.0.1.2", "words-1-0.store.0.1.2.json",
    "squall-words-1-0.store.0.1.2-1-00000.snappy.parquet", "squall-a-1-0.store.0.1.2", "words-1-0.store.00.1.2",
    "words-1-0.store.0.2.claim.json", "words-1-0.store.0.2.fence.json", "words-1-0.store.0.02.fence.json", "7.json",
    "007.json", "٣.json", "part-1-ab.json.gz", "squall-squall-a-1-0.store.0.1.2-1-00000.parquet",
)  # fmt: skip
RUN: Final[dict[str, Any]] = {
    "command": "reprocess", "job": "recount.py", "code": "sha256:ab", "settings": {"a": [1, None], "ü": 1.5},
    "inputs": [{"path": "/in", "snapshot": "sha256:cd", "rows": 10, "since": 1.5, "until": None}],
    "file_format": "parquet", "partition_by": ["day"],
}  # fmt: skip


def frozen_tables() -> dict[str, Any]:
    """Each folder: its files, its empty folders, and the results of reading it."""
    found = {}
    for name, (make, asked) in {
        "stream": (_stream, STREAM),
        "no rows": (_empty, STREAM),
        "result": (_result, RESULT),
    }.items():
        with TemporaryDirectory() as folder:
            make(Path(folder))
            frozen = _folder(Path(folder))
        found[name] = {**frozen, "told": {each: value_read(frozen, each) for each in asked}}
    return found


def _folder(folder: Path) -> dict[str, Any]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    folders = sorted(path for path in folder.rglob("*") if path.is_dir() and not any(path.iterdir()))
    return {
        "files": {path.relative_to(folder).as_posix(): as_text(path.read_bytes()) for path in files},
        "folders": [path.relative_to(folder).as_posix() for path in folders],
    }


def _empty(folder: Path) -> None:
    """A table without any batch."""
    tables = old(f"{SPARK}.manifest.tables")
    tables.open_table(current_tables.files_at(folder), tables.Table(tables.ROWS, "orc", ()))


def _stream(folder: Path) -> None:
    """A table of two writer ids in three epochs, with a checkpoint, a compacted batch, one that does not count, one in
    progress.
    """
    tables, schema = old(f"{SPARK}.manifest.tables"), old(f"{SPARK}.rows.schema").parse_schema
    files = current_tables.files_at(folder)
    tables.open_table(files, tables.Table(tables.ROWS, "parquet", ("day",)))
    tables.agree_on_schema(files, schema("directory string, batch string"))
    tables.agree_on_schema(
        files, schema("directory string, batch string, more array<struct<a: int, `b c`: string>>")
    )
    disk = old("tests.squall_io.disk_world")
    straight = old("tests.squall_io.memory_files").straight
    world = disk.DiskWorld(folder)
    world.owner(straight, index=0, batches=3)
    checkpoints, state = old(f"{SPARK}.manifest.checkpoints"), old(f"{SPARK}.manifest.state")
    assert checkpoints.write_next(
        files, checkpoints.read_newest(files), state.read_state(files).uncovered[:2]
    )
    world.owner(straight, index=0, batches=1, incarnation=(2, 1))
    world.owner(straight, index=1, batches=2)
    _odd_entries(files, world)
    claims = old(f"{SPARK}.manifest.claims")
    seat = old("tests.squall_io.commit_world").seat(1)
    claims.retire(files, seat, 1, "a sweeper", 1_700_000_100.0)
    claims.take_back(files, seat, 1, (1, 0), "host:1", 1_700_000_101.5, "a token")
    name = old(f"{SPARK}.manifest.layout").BatchName(seat, 3, 1)
    files.replace(f"{name.attempt(1)}/day=1/part-00000.parquet", b"under way")


def _odd_entries(files: Any, world: Any) -> None:
    """An entry of an epoch that is over, one that replaces others, and one of a topology with an odd name."""
    entries, layout = old(f"{SPARK}.manifest.entries"), old(f"{SPARK}.manifest.layout")
    seat = old("tests.squall_io.commit_world").seat
    digest_of = old(f"{SPARK}.manifest.envelopes").digest_of
    odd = layout.Seat.of(f"{ODD}-1-0", ODD, 3)
    old(f"{SPARK}.manifest.claims").take_over(files, odd, (1, 0), ODD, 1.0)
    for batch, replaces in (
        (layout.BatchName(seat(0), 1, 9), ()),
        (layout.BatchName(seat(1), 1, 7), (str(layout.BatchName(seat(1), 1, 1)),)),
        (layout.BatchName(odd, 1, 1), ()),
    ):
        path, data = f"day=3/{batch.data_file(1, 0, '.parquet')}", f"rows of {batch}".encode()
        files.put_if_absent(path, data)
        file = entries.DataFile(path, len(data), digest_of(data))
        entry = entries.Entry(
            batch, "counts", batch.seat.topology_id, ODD, (1, 0), 2, 5, (file,), 1.25, replaces
        )
        files.put_if_absent(batch.commit, entries.encode_entry(entry))


def _result(folder: Path) -> None:
    """A table of versions: one is pruned, two are kept, one is sealed and not published, one attempt is at work."""
    versions, tables = old(f"{SPARK}.results.versions"), old(f"{SPARK}.manifest.tables")
    files = current_tables.files_at(folder)
    table = tables.Table(tables.RESULTS, "parquet", ("day",))

    def run(job: str) -> Any:
        return versions.Run(
            "reprocess", job, job, (versions.Input("/in", "sha256:cd", 10, 1.5),), {"a": [1]}, table
        )

    def begun(job: str) -> Any:
        attempt = versions.begin(files, run(job))
        for part in range(2):
            files.put_if_absent(f"{attempt.rows}/day={part}/part-{part}.parquet", f"{job} {part}".encode())
        return attempt

    for number, job in enumerate(("one.py", "two.py", ODD)):
        found = versions.publish(
            files, begun(job), run(job), 2, "n int, m string", lambda at=number: 1.5 + at, {"errors": number}
        )
        versions.tidy(files, found.version.run)
    begun("at work.py")  # a new run first finishes a sealed one
    versions._sealed(files, begun("sealed.py"), run("sealed.py"), 2, "n int", 9.0, {})


def mutated_records() -> dict[str, Any]:
    """The outcomes of invalid records whose hash fits."""
    with TemporaryDirectory() as folder:
        made = _single_records(Path(folder))
    return {
        kind: tabulate(reader_of(kind, made["part"]), made[kind]) for kind in current_tables.READ_RECORD_OF
    }


def _single_records(folder: Path) -> dict[str, bytes]:
    """A record of each kind without its hash; and a part of the checkpoint, which has its name inside."""
    files = current_tables.files_at(folder)
    manifest, spouts = f"{SPARK}.manifest", f"{SPARK}.spouts"
    tables, entries = old(f"{manifest}.tables"), old(f"{manifest}.entries")
    versions, checkpoints, claims = (
        old(f"{SPARK}.results.versions"),
        old(f"{manifest}.checkpoints"),
        old(f"{manifest}.claims"),
    )
    records, positions = old(f"{spouts}.position_records"), old(f"{spouts}.positions")
    tables.open_table(files, tables.Table(tables.ROWS, "parquet", ("day",)))
    tables.agree_on_schema(files, old(f"{SPARK}.rows.schema").parse_schema("a int, b string"))
    file = entries.DataFile("day=1/x.parquet", 3, "sha256:ab")
    batch = current_tables.BATCH
    entry = entries.Entry(batch, "words", "words-1-0", "store", (1, 0), 1, 5, (file,), 1.5, ("a.b.0.1.1",))
    old_names = secrets_replaced(checkpoints)
    try:
        checkpoints.write_next(files, checkpoints.Checkpoint(), [entry])
    finally:
        old_names()
    files.put_if_absent(batch.commit, entries.encode_entry(entry))
    claims.take_over(files, batch.seat, (1, 2), "host:1", 1.5)
    claims.take_over(files, batch.seat, (1, 2), "host:1", 1.5)
    run = versions.Run("reprocess", "a.py", "c", (versions.Input("/in", "s", 1, 1.5),), {"a": 1})
    attempt = versions.begin(files, run)
    files.put_if_absent(f"{attempt.rows}/part-0.parquet", b"rows")
    (folder / "_squall/table.json").unlink()
    tables.open_table(current_tables.files_at(folder), tables.Table(tables.RESULTS, "parquet", ()))
    versions.publish(files, attempt, run, 2, "n int", lambda: 1.5, {"errors": 1})
    files.replace("_squall/table.json", tables._record_of(tables.Table(tables.ROWS, "parquet", ("day",))))
    records.require_reader(files, current_tables.READER)
    records.agree(files, "words-1-0", lambda: {"records": 1, "batches": {"a": [[0, 3]]}})
    task = positions.Positions(0, 2)
    _read_some(task, positions, [("", number) for number in (0, 2, 4)], [("", 6, 3)])
    records.PositionRecords(files, task, records.owner_name("words-1-0", (1, 0))).save()
    found_file = old(f"{spouts}.file_list").FoundFile
    old(f"{spouts}.file_list").FileList(files).add(
        [found_file("a.txt", 5, 1024, 1.5), found_file("b.txt", 7, 1024)]
    )
    made = {kind: unsealed(files.read(path)) for kind, (path, _) in current_tables.READ_RECORD_OF.items()}
    [part] = [status.path for status in files.list("_squall/checkpoints") if "part" in status.path]
    return {**made, "part": files.read(part)}


def secrets_replaced(module: Any) -> Any:
    """Have a module draw the same names each time; return the function that ends that."""
    before, random = module.secrets, Random(1)

    class Drawn:
        @staticmethod
        def token_hex(size: int) -> str:
            return random.randbytes(size).hex()

    module.secrets = Drawn

    def end() -> None:
        module.secrets = before

    return end


def _read_some(
    task: Any, positions: Any, done: list[tuple[str, int]], begun: list[tuple[str, int, int]]
) -> None:
    """A task has read some units, and begun others up to a place."""
    for series, number in done:
        unit = positions.Unit(series, number)
        if task.mine(unit):
            task.exhausted(task.begin(unit))
    for series, number, place in begun:
        unit = positions.Unit(series, number)
        if task.mine(unit):
            task.begin(unit).taken(place, place + 1)


def frozen_positions() -> dict[str, Any]:
    """A folder of positions, of three submissions with other numbers of tasks; with the findings of each task."""
    records, positions = old(f"{SPARK}.spouts.position_records"), old(f"{SPARK}.spouts.positions")
    file_list, random = old(f"{SPARK}.spouts.file_list"), Random(7)
    with TemporaryDirectory() as folder:
        files = current_tables.files_at(Path(folder))
        records.require_reader(files, current_tables.READER)
        for number, parallelism in enumerate((2, 3, 2), 1):
            records.agree(
                files, f"words-{number}-0", lambda number=number: {"records": number, "batches": {}}
            )
            for index in range(parallelism):
                task = positions.Positions(index, parallelism)
                owner = records.PositionRecords(
                    files, task, records.owner_name(f"words-{number}-0", (number, index))
                )
                owner.load()
                left = [unit for unit in UNITS if not task.is_done(positions.Unit(*unit))]
                begun = [(series, at, random.randrange(99)) for series, at in random.sample(left, 12)]
                _read_some(task, positions, random.sample(left, 12), [])
                there = [each for each in begun if not task.is_done(positions.Unit(*each[:2]))]
                _read_some(task, positions, [], there)
                owner.save()
        for number in range(105):
            found = file_list.FoundFile(f"{ODD}/{number}.gz", number, 1 << 20, number / 4)
            file_list.FileList(files).add([found])
        frozen = _folder(Path(folder))
        tasks = {
            f"{index} of {parallelism}": plain(
                current_tables.read_positions(files, index, parallelism, UNITS)
            )
            for parallelism in (1, 2, 3, 5)
            for index in range(parallelism)
        }
        return {**frozen, "tasks": tasks, "found": plain(current_tables.read_files_found(files))}


def frozen_names() -> dict[str, Any]:
    """Names of files, owners of units, ids of runs; a part of a checkpoint."""
    with TemporaryDirectory() as folder:
        part = _single_records(Path(folder))["part"]
    return {
        "names": {name: plain(current_tables.names_of(name)) for name in NAMES},
        "owners": {
            str(parallelism): [current_tables.owner_of_unit(*unit, parallelism) for unit in UNITS]
            for parallelism in (1, 2, 3, 7)
        },
        "run": RUN,
        "run id": current_tables.run_id(RUN),
        "units": UNITS,
        "part of a checkpoint": base64.b64encode(part).decode(),
    }
