"""What a job answers: facts, and tables that people, JSON, Parquet and plots are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from engine.dataclass import dataclass

Progress = Callable[[int, int, str], None]
"""Called with tasks done and in all (0: not known yet), and what is being done."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column names. Values are str, int, float, bool or None.

    Attributes:
        name: in JSON, and of its Parquet file.
        title: what people read above it.
        columns: snake_case names.
        rows: the values.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def to_json(self) -> list[dict[str, Any]]:
        """A row an object."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class JobResult:
    """The answer of a job.

    Attributes:
        job: its name.
        facts: what is shown before the tables, by snake_case name; counts, bytes, seconds.
        tables: in the order in which they are shown.
        ok: whether nothing is wrong with the stores; else the command ends with 1.
    """

    job: str
    facts: dict[str, Any]
    tables: tuple[Table, ...] = ()
    ok: bool = True
    notes: tuple[str, ...] = field(default=())

    def table(self, name: str) -> Table:
        """The table of that name. Raises KeyError."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """Facts, and each table under its name."""
        answer: dict[str, Any] = {"job": self.job, "ok": self.ok, **self.facts}
        answer.update({table.name: table.to_json() for table in self.tables})
        if self.notes:
            answer["notes"] = list(self.notes)
        return answer
