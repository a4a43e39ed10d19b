"""What the names and lengths of a store's files tell of what a start stumbles over."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.errors import FormatError
from engine.files.rocksdb import has_rocksdict
from engine.format import names
from engine.inspect.finding_codes import Fix
from engine.inspect.store.change_gate import is_repaired_here
from engine.inspect.store.known import known_of
from engine.inspect.store.layout import arranged
from engine.inspect.store.newer import DLEDGER, ROCKSDB_CONFIG, ROCKSDB_QUEUES
from engine.inspect.store.odd import QUEUE_EMPTY, SIZE, STRAY
from engine.inspect.store.path_slips import hint_of, key_of, log_settings, meant_instead, slip_of
from engine.inspect.store.repairs import unfinished
from engine.inspect.store.segment_place import UNREAD
from engine.inspect.store.unnamed import unnamed_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.finding import Findings
    from engine.inspect.store.layout import Layout
    from engine.inspect.store.repairs import Repair
    from engine.inspect.store.survey import StoreFiles


def file_findings(
    disk: Disk,
    files: StoreFiles,
    findings: Findings,
    *,
    live: bool,
    done: Sequence[Repair],
    leave_out: frozenset[str] = frozenset(),
    layout: Layout | None = None,
) -> None:
    """What the names and lengths of a store's files tell, and which of its repairs (`done`) was interrupted.

    `leave_out`: paths that were reported already. `layout`: what the records in the log's files say (None: not looked).
    """
    _newer_findings(files, findings)
    if layout is not None:
        _layout_findings(files, layout, findings, leave_out)
    odd_ones = files.odd if layout is None else layout.left
    for odd in odd_ones:
        where = os.path.relpath(odd.path, files.root)
        if odd.path not in leave_out and not (
            live and odd.code in (STRAY, QUEUE_EMPTY)
        ):  # one in the making has no length yet
            size = f", {odd.size} bytes" if odd.size else ""
            segment = os.path.dirname(odd.path) in files.config.log_directories
            fix = Fix.BRING if odd.hint else Fix.BRIDGE if odd.code == SIZE and segment else None
            detail = f"{odd.description}{size}"
            findings.add(odd.code, where, where, detail, fix=fix, hint=odd.hint or None)
    for index in files.index:
        if not index.whole and not (live and index.size == 0):
            where = f"index/{index.name}"
            findings.add("file-size", where, where, f"{index.size} bytes instead of {files.index_layout.file_size}")
    if files.abort and not live:
        findings.add("not-closed", names.ABORT, names.ABORT)
    if not live:
        for repair in unfinished(done):
            findings.add("repair-unfinished", names.SALVAGE, os.path.join(names.SALVAGE, repair.name))
        for repair in done:
            if repair.undoing and not repair.undone:
                findings.add("undo-unfinished", names.SALVAGE, os.path.join(names.SALVAGE, repair.name))
    if not files.checkpoint_ok and (files.log or files.queues):
        findings.add("checkpoint-missing", names.CHECKPOINT, names.CHECKPOINT)
    if is_log_gone(files, layout) and any(queue.files for queue in files.queues):
        hint = next((slip for p in log_settings(files.config) if (slip := _slip(disk, files.config, p))), None)
        findings.add("log-missing", names.COMMITLOG, os.fspath(files.config.commit_log_paths[0]), hint=hint)


def _newer_findings(files: StoreFiles, findings: Findings) -> None:
    for part in files.newer.parts:
        unread = ", not read by rstore" if part in files.newer.not_looked_at else ""
        if unread and part.what in (ROCKSDB_QUEUES, ROCKSDB_CONFIG) and not has_rocksdict():
            unread = ", read with the package rocksdict: pip install 'rstore[rocksdb]'"
        code = "newer-part" if is_repaired_here(part) else "newer-store"
        code = "dledger-store" if part.what == DLEDGER else code
        findings.add(code, part.where, part.where, part.what + unread)
    if isinstance(files.newer.unread, FormatError) and files.newer.queue_database:
        note_damage(files, files.newer.unread, findings)


def is_log_gone(files: StoreFiles, layout: Layout | None) -> bool:
    """Whether no file holds a part of the log, under whatever name and of whatever length."""
    if files.log or layout is None:
        return not files.log
    return not layout.segments and layout.always is None


def as_planned(files: StoreFiles, layout: Layout | None) -> StoreFiles:
    """The store with its log as recovery will make it, or as it is beside a process that has it (no layout).

    What is reported of the log goes by this: a file under another name, or of another length, holds its messages still.
    """
    return files if layout is None else arranged(files, layout)


def absent_paths(disk: Disk, config: StoreConfig) -> list[str]:
    """Directories of the commit log that the settings name, and that are not there."""
    return [path for path in config.log_directories if config.store_path_commit_log and not disk.is_dir(path)]


def path_findings(disk: Disk, config: StoreConfig, findings: Findings) -> None:
    """Directories of the log that are not there."""
    for path in absent_paths(disk, config):
        findings.add("path-missing", path, path, hint=_slip(disk, config, path))


def _slip(disk: Disk, config: StoreConfig, path: str) -> str | None:
    """What to do where a blank or a comment in the settings is why a directory is not there."""
    plain = meant_instead(disk, path)
    if plain is None:
        return None
    slip = slip_of(path, plain)
    return f'"{path}" has {slip}, "{plain}" is there: {hint_of(config, key_of(config, path), slip)}'


def _layout_findings(files: StoreFiles, layout: Layout, findings: Findings, leave_out: frozenset[str]) -> None:
    """Files of the log under other names, of another length, and those that have no place in it."""

    def below(path: str) -> str:
        return os.path.relpath(path, files.root)

    if layout.always is not None:
        error = layout.always
        findings.add(
            "file-size", error.path or "", below(error.path or ""), error.message, fix=Fix.BRING, hint=error.hint
        )
        return
    for one in layout.relocations:
        findings.add(
            "log-misplaced", one.path, below(one.path), f"its records belong to {os.path.basename(one.target)}"
        )
    for resize in layout.resizes:
        where = below(resize.segment.file)
        loses = resize.data or (resize.segment.short and resize.segment is not layout.segments[-1])
        detail = f"{resize.held} bytes instead of {resize.segment.size}"
        findings.add("file-size", where, where, detail, fix=Fix.BRIDGE if loses else Fix.RECOVER)
    for odd in (odd for odd in layout.aside if odd.path not in leave_out):
        if odd.path not in layout.unplaced:
            findings.add("file-stray", odd.path, below(odd.path), odd.description)
        elif odd.why == UNREAD:
            findings.add("file-stray", odd.path, below(odd.path), odd.description, fix=Fix.BRIDGE)
        else:
            findings.add("log-surplus", odd.path, below(odd.path), odd.description)


def space_findings(disk: Disk, files: StoreFiles, findings: Findings) -> None:
    """Whether the log's disk takes another segment, for a broker that is not root's. Raises StorageError."""
    size = files.config.mapped_file_size_commit_log
    for path in {os.fspath(path) for path in files.config.commit_log_paths}:
        usable = disk.usage(path).usable if disk.is_dir(path) else size
        if usable < size:
            findings.add("disk-space", path, path, f"{usable} bytes are free, a segment needs {size}")


def gap_findings(disk: Disk, files: StoreFiles, findings: Findings, done: Sequence[Repair]) -> None:
    """Missing segments; those that a repair was allowed to continue after are known. `files`: as `as_planned`."""
    known = known_of(done).accepted
    missing = []
    for one, two in pairwise(files.log):
        if one.end < two.offset:
            code = "log-accepted" if known.overlap(one.end, two.offset) == two.offset - one.end else "log-gap"
            findings.add(code, one.path, one.path, f"{two.offset - one.end} bytes at {one.end}")
            missing += [(one.end, two.offset)] if code == "log-gap" else []
    unnamed_finding(disk, files, missing, findings)


def unnamed_finding(disk: Disk, files: StoreFiles, missing: Iterable[tuple[int, int]], findings: Findings) -> None:
    """Whether one of the missing segments lies in a directory that no setting names."""
    path = unnamed_segment(disk, files, missing)
    if path is not None:
        where = os.path.relpath(path, files.root)
        findings.add("path-unnamed", where, where)


def note_damage(files: StoreFiles, error: FormatError, findings: Findings) -> None:
    """A database with consume queues that can't be read."""
    place = os.path.relpath(error.path, files.root) if error.path else files.newer.queue_database
    if error.offset is not None:
        place = f"{place} at {error.offset}"
    findings.add("rocksdb-damage", files.newer.queue_database, place, error.message)
