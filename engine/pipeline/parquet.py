"""The tables of a job's answer as Parquet: a file each, by the table's name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.errors import StorageError, from_os_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from engine.pipeline.result import JobResult, Table


def write_tables(result: JobResult, directory: str | os.PathLike[str]) -> list[Path]:
    """Write `<directory>/<table>.parquet` for each table, over what was there; the paths.

    Raises:
        StorageError: pyarrow is missing, or the system refuses.
    """
    from pathlib import Path

    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise StorageError("pyarrow is not installed", hint="pip install 'rstore[spark]'") from None
    base = Path(directory)
    written = []
    try:
        base.mkdir(parents=True, exist_ok=True)
        for table in result.tables:
            path = base / f"{table.name}.parquet"
            pq.write_table(arrow_table(table), path)
            written.append(path)
    except OSError as error:
        raise from_os_error(error, "writing the tables", base) from None
    return written


def arrow_table(table: Table) -> pa.Table:
    """A table with a type for each column: what its values are; text where they are of several kinds, or none."""
    import pyarrow as pa

    values = [[row[i] for row in table.rows] for i in range(len(table.columns))]
    columns = []
    for column in values:
        kind = _kind(column)
        typed = column if kind is not str else [None if value is None else str(value) for value in column]
        columns.append(pa.array(typed, _types()[kind]))
    return pa.table(columns, names=list(table.columns), metadata={"title": table.title})


def _kind(values: Sequence[Any]) -> type:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return float
    (only,) = kinds if len(kinds) == 1 else (str,)
    if only is int and not all(-(1 << 63) <= value < 1 << 63 for value in values if value is not None):
        return str
    return only if only in _types() else str


def _types() -> dict[type, pa.DataType]:
    import pyarrow as pa

    return {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
