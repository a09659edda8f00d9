"""The signals table on its way to a local file, in row groups of bounded size: hours of video stay flat in memory."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.algorithms.signals import SignalRow
from tasks.records.signals import SIGNAL_COLUMNS

_GROUP_ROWS = 20_000
_TYPES = {"int64": pa.int64(), "float32": pa.float32(), "bool": pa.bool_()}
SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in SIGNAL_COLUMNS.items()])


class SignalsWriter:
    """Writes rows in order; ``close`` (or the end of the ``with`` block) completes the file.

    Args:
        path: local file, replaced.
        group_rows: rows held in memory and written as one row group.
    """

    def __init__(self, path: Path, group_rows: int = _GROUP_ROWS) -> None:
        self._writer: Any = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._group_rows = group_rows
        self._columns: dict[str, list[Any]] = {name: [] for name in SIGNAL_COLUMNS}
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, row: SignalRow) -> None:
        """Add one row."""
        for name, column in self._columns.items():
            column.append(getattr(row, name))
        self.rows += 1
        if self.rows % self._group_rows == 0:
            self._flush()

    def close(self) -> None:
        """Write what is held and end the file."""
        if self._writer is None:
            return
        self._flush()
        self._writer.close()
        self._writer = None

    def _flush(self) -> None:
        if self._columns["frame_index"]:
            self._writer.write_table(pa.table(self._columns, schema=SCHEMA))
            for column in self._columns.values():
                column.clear()
