"""A copy of a base that is being damaged: where its parts lie, and a hand that writes into them."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace
from pathlib import Path

from . import own
from .bases import Base, Facts
from .own import Record

PAGE = 4096
SECTOR = 512


class NotHere(Exception):
    """This store has no place for that damage (any more): nothing was changed."""


@dataclass
class Scene:
    """One damaged store in the making. `facts`: what was written; `others`: where foreign files come from."""

    rng: random.Random
    root: Path
    base: Base
    facts: Facts
    others: tuple[Base, ...] = ()

    # --- where things are -------------------------------------------------------------------------------------------

    @property
    def log_dirs(self) -> list[Path]:
        """The directories of the commit log."""
        return self.base.log_dirs(self.root)

    def segments(self) -> list[tuple[int, Path]]:
        """Every segment that is a file, by the offset its name says."""
        found = [
            (offset, directory / name)
            for directory in self.log_dirs
            for name in own.listed(directory)
            if (offset := own.named(name)) is not None and own.regular(directory / name)
        ]
        return sorted(found)

    def segment(self, *, filled: bool = True) -> tuple[int, Path]:
        """One of them; `filled`: with records of ours in it."""
        return self.pick([one for one in self.segments() if not filled or self.records_in(one[0])])

    def records_in(self, start: int) -> list[int]:
        """The offsets of what was written into a segment."""
        return [offset for offset in self.facts.records if start <= offset < start + self.base.segment]

    def record(self, least_body: int = 0) -> tuple[int, Record, Path, int]:
        """A record that is whole at its place: offset, fields, its file, its position there."""
        segments = self.segments()
        for _ in range(40):
            start, path = self.pick(segments)
            inside = self.records_in(start)
            if not inside:
                continue
            offset = self.rng.choice(inside)
            data, record = self.facts.records[offset]
            if len(record.body) >= least_body and own.content(path)[offset - start :].startswith(data):
                return offset, record, path, offset - start
        raise NotHere

    def queue_dirs(self) -> list[Path]:
        """Every queue's directory."""
        top = self.root / "consumequeue"
        return [
            top / topic / one
            for topic in own.listed(top)
            for one in own.listed(top / topic)
            if (top / topic / one).is_dir() and not (top / topic / one).is_symlink()
        ]

    def queue_files(self) -> list[Path]:
        """Every queue's files."""
        return [path / name for path in self.queue_dirs() for name in own.listed(path) if own.regular(path / name)]

    def queue_file(self, least: int = 1) -> tuple[Path, int]:
        """A queue's file with at least so many units that say something, and their number."""
        for _ in range(40):
            path = self.pick(self.queue_files())
            units = self.units(path)
            if units >= least:
                return path, units
        raise NotHere

    @staticmethod
    def units(path: Path) -> int:
        """How many of a file's bytes are units that say something."""
        return len(own.content(path).rstrip(b"\0")) // own.UNIT

    def index_files(self) -> list[Path]:
        """Every index file."""
        top = self.root / "index"
        return [top / name for name in own.listed(top) if name.isdigit() and own.regular(top / name)]

    def end(self) -> tuple[Path, int]:
        """Where the log ends: file and position."""
        at = self.facts.end
        for start, path in self.segments():
            if start <= at < start + self.base.segment and path.stat().st_size == self.base.segment:
                return path, at - start
        raise NotHere

    # --- changing it ------------------------------------------------------------------------------------------------

    def pick(self, among: list):  # type: ignore[no-untyped-def,type-arg]
        """One of these; NotHere when there is none."""
        if not among:
            raise NotHere
        return self.rng.choice(among)

    @staticmethod
    def write(path: Path, at: int, data: bytes) -> None:
        """Overwrites bytes; what lies behind the file's end is left out."""
        with path.open("r+b") as file:
            left = os.fstat(file.fileno()).st_size - at
            file.seek(at)
            file.write(data[: max(0, left)])

    def swapped(self, files: list[Path]) -> str:
        """Gives two of these each other's content; NotHere when there are not two."""
        if len(files) < 2:
            raise NotHere
        one, other = self.rng.sample(files, 2)
        data = own.content(one)
        one.write_bytes(own.content(other))
        other.write_bytes(data)
        return f"{self.said(one)} and {self.said(other)}"

    def said(self, path: Path) -> str:
        """The path below the store."""
        return str(path.relative_to(self.root))

    def rewrite(self, offset: int, data: bytes) -> None:
        """What was written at an offset is this from now on: not damage, another history."""
        record = own.parse(data, 0)
        assert record is not None
        self.facts = replace(self.facts, records={**self.facts.records, offset: (data, record)})
