"""What lies in a store's salvage/ and quarantine/: repairs, their pieces, what is whole in them, their space."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import Refused
from engine.files.written import data_ranges
from engine.format import names
from engine.inspect.dump.replayed import read_runs
from engine.inspect.dump.salvage_scan import ScanReport, scan_saved, scan_span
from engine.inspect.dump.saved_log import (
    SavedRepair,
    find_repair,
    log_offset,
    log_spans,
    missing_copies,
    saved_repairs,
)
from engine.inspect.store.repairs import KEPT, MANIFEST
from engine.inspect.store.survey import survey

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.dump.replayed import Run
    from engine.inspect.dump.saved_log import Span


@dataclass(frozen=True, slots=True)
class RepairEntry:
    """One repair. `disk_bytes`: bytes that its directories take. `report`: what is sound in the log that it saved.

    `runs`: its replays; `unreadable`: why nobody knows them.
    """

    saved: SavedRepair
    disk_bytes: int
    report: ScanReport
    runs: tuple[Run, ...]
    unreadable: str | None
    missing: frozenset[str]

    def to_json(self) -> dict[str, Any]:
        """One of the list's repairs."""
        manifest = self.saved.repairs[-1].manifest
        pieces = [piece for repair in self.saved.repairs for piece in repair.pieces]
        return {
            "id": self.saved.id,
            "command": manifest["command"],
            "time": manifest["time"],
            "state": self.saved.state,
            "resumedFrom": [repair.name for repair in self.saved.repairs[:-1]],
            "pieces": len(pieces),
            "bytesChanged": sum(int(piece["length"]) for piece in pieces if piece["action"] in KEPT),
            "diskBytes": self.disk_bytes,
            "logBytes": sum(span.size for span in _spans(self.saved, self.missing)),
            "records": self.report.sound.records,
            "recordBytes": self.report.sound.size,
            "displaced": self.report.displaced.records,
            "lostBytes": self.report.lost_bytes,
            "replays": [run.to_json() for run in self.runs],
            **({"problem": self.unreadable} if self.unreadable else {}),
        }


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything. `leftovers`: directories of salvage/ that no readable manifest explains (path, bytes, why).

    `quarantine`: files that were set aside (path below quarantine/, bytes, the repair that did it, why).
    """

    root: str
    entries: tuple[RepairEntry, ...]
    leftovers: tuple[tuple[str, int, str], ...]
    quarantine: tuple[tuple[str, int, str | None, str | None], ...]

    @property
    def disk_bytes(self) -> int:
        """Bytes that salvage/ takes."""
        return sum(entry.disk_bytes for entry in self.entries) + sum(size for _, size, _ in self.leftovers)

    def to_json(self) -> dict[str, Any]:
        """The JSON of `salvage list`."""
        return {
            "repairs": [entry.to_json() for entry in self.entries],
            "diskBytes": self.disk_bytes,
            "leftovers": [
                {"path": os.path.basename(path), "diskBytes": size, "why": why} for path, size, why in self.leftovers
            ],
            "quarantine": [
                {"path": path, "bytes": size, "repair": repair, "why": why}
                for path, size, repair, why in self.quarantine
            ],
        }


def inventory(disk: Disk, config: StoreConfig, *, progress: Callable[[int, int], None] | None = None) -> Inventory:
    """Look at all of it; reads the log pieces whole. `progress` is called with bytes read so far and in all.

    Raises:
        NotAStore, CannotRepair, StorageError.
    """
    files = survey(disk, config)
    every = saved_repairs(disk, files.root)
    sizes = [sum(span.size for span in _spans(saved, missing_copies(disk, saved))) for saved in every]
    total = sum(sizes)
    done = 0
    entries: list[RepairEntry] = []
    for saved, size in zip(every, sizes, strict=True):
        at = done

        def tell(some: int, _: int, at: int = at) -> None:
            if progress is not None:
                progress(min(at + some, total), total)

        entries.append(_entry(disk, saved, files.config.max_message_size, tell))
        done += size
    return Inventory(files.root, tuple(entries), tuple(leftovers(disk, files.root)), tuple(_aside(disk, files.root)))


@dataclass(frozen=True, slots=True)
class Detail:
    """One repair with its pieces as JSON objects; those of the log say what is whole in them."""

    entry: RepairEntry
    pieces: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """The JSON of `salvage show`."""
        manifest = self.entry.saved.repairs[-1].manifest
        return {
            **self.entry.to_json(),
            "directory": self.entry.saved.directory,
            "accepted": manifest.get("accepted", []),
            "bridged": manifest.get("bridged", []),
            "scan": self.entry.report.to_json(),
            "changes": list(self.pieces),
        }


def describe(disk: Disk, config: StoreConfig, name: str) -> Detail:
    """One repair, piece by piece. Raises InvalidArgument for an unknown name; as `inventory`."""
    files = survey(disk, config)
    saved = find_repair(disk, files.root, name)
    size = files.config.max_message_size
    spans = _spans(saved, missing_copies(disk, saved))
    pieces = []
    for repair in saved.repairs:
        for piece in repair.pieces:
            one = {"repair": repair.name, **piece}
            origin = log_offset(piece)
            if origin is not None:
                one["physicalOffset"] = origin + int(piece["offset"])
                path = os.path.join(repair.directory, str(piece["file"]))
                reports = [scan_span(disk, span, size) for span in spans if span.path == path]
                one["records"] = sum(report.sound.records for report in reports)
                one["displaced"] = sum(report.displaced.records for report in reports)
                one["lostBytes"] = sum(report.lost_bytes for report in reports)
            pieces.append(one)
    return Detail(_entry(disk, saved, size, None), tuple(pieces))


def disk_bytes(disk: Disk, path: str) -> int:
    """Bytes of data in a file, or below a directory; holes take none."""
    if disk.is_dir(path):
        return sum(disk_bytes(disk, entry.path) for entry in disk.scandir(path))
    if not disk.exists(path):
        return 0
    reader = disk.open_reader(path)
    try:
        return sum(high - low for low, high in data_ranges(reader, 0, reader.size()))
    finally:
        reader.close()


def leftovers(disk: Disk, root: str) -> Iterator[tuple[str, int, str]]:
    """Directories of salvage/ that no readable manifest explains: path, bytes, why."""
    base = os.path.join(root, names.SALVAGE)
    known = {repair.directory for saved in saved_repairs(disk, root) for repair in saved.repairs}
    for entry in disk.scandir(base) if disk.is_dir(base) else ():
        if entry.path in known or not disk.is_dir(entry.path):
            continue
        broken = disk.exists(os.path.join(entry.path, MANIFEST))
        yield entry.path, disk_bytes(disk, entry.path), UNREADABLE if broken else ABANDONED


ABANDONED = "no manifest: the repair was killed before it changed anything, or it was pruned"
UNREADABLE = "its manifest can't be read"


def _spans(saved: SavedRepair, missing: frozenset[str]) -> list[Span]:
    return [] if saved.state == "pruned" else log_spans(saved, missing)


def _entry(
    disk: Disk, saved: SavedRepair, max_message_size: int, progress: Callable[[int, int], None] | None
) -> RepairEntry:
    report = ScanReport() if saved.state == "pruned" else scan_saved(disk, saved, max_message_size, progress)
    runs, unreadable = read_known_runs(disk, saved)
    missing = missing_copies(disk, saved) if saved.state != "pruned" else frozenset()
    if missing:
        gone = ", ".join(sorted(os.path.basename(path) for path in missing))
        unreadable = f"missing: {gone}" + (f"; {unreadable}" if unreadable else "")
    taken = sum(disk_bytes(disk, repair.directory) for repair in saved.repairs)
    return RepairEntry(saved, taken, report, runs, unreadable, missing)


def read_known_runs(disk: Disk, saved: SavedRepair) -> tuple[tuple[Run, ...], str | None]:
    """The replays of a repair; or why nobody knows them."""
    try:
        return tuple(read_runs(disk, saved)), None
    except Refused as error:
        return (), error.message


def _aside(disk: Disk, root: str) -> Iterator[tuple[str, int, str | None, str | None]]:
    by_target = {
        str(piece["target"]): (saved.id, str(piece["why"]))
        for saved in saved_repairs(disk, root)
        for repair in saved.repairs
        for piece in repair.pieces
        if piece["action"] == "move"
    }
    base = os.path.join(root, names.QUARANTINE)
    for path, size in _files(disk, base) if disk.is_dir(base) else ():
        by, why = by_target.get(os.path.relpath(path, root), (None, None))
        yield os.path.relpath(path, base), size, by, why


def _files(disk: Disk, directory: str) -> Iterator[tuple[str, int]]:
    for entry in disk.scandir(directory):
        if not entry.is_file and disk.is_dir(entry.path):
            yield from _files(disk, entry.path)
        else:
            yield entry.path, entry.size
