"""What stands for Spark in a sink whose files pyarrow writes."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from squall_io.spark.rows.arrow import arrow_schema
from squall_io.spark.rows.schema import Schema
from squall_io.spark.sink.writing import WriteAs


class Lease:
    """A lease of no session."""

    def __init__(self) -> None:
        self.session: Any = object()

    def renew(self, session: Any) -> None: ...

    def release(self, linger: float) -> None: ...


class PyarrowWriter:
    """Writes a file to a local folder, as a `TableWriter` does."""

    def __init__(self, session: Any, schema: Schema, write_as: WriteAs) -> None:
        self.session, self.schema = session, arrow_schema(schema)

    def write(self, rows: Any, folder: str) -> None:
        import pyarrow.parquet

        place = Path(folder.removeprefix("file://"))
        place.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(rows.cast(self.schema), place / f"part-{uuid.uuid4().hex}.parquet")

    def warm_up(self, folder: str) -> None:
        import pyarrow

        self.write(
            pyarrow.table([pyarrow.nulls(1, each.type) for each in self.schema], schema=self.schema), folder
        )

    def close(self) -> None: ...
