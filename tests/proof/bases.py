"""The undamaged stores that the proof damages: fixtures/proof/ and the stores of fixtures/, each with what is in it."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import tarfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.compat import fixtures
from tests.compat.apache import Opened
from tests.support import newer, starts
from tests.support.archives import extract

from . import own
from .own import Record

PLACE = fixtures.FIXTURES / "proof"
ROCKETMQ5 = "rocketmq5"
"""Stands for all bases of RocketMQ 5."""
OLD = "4.9.8"
RELEASES = ("5.3.3", "5.5.0")


@dataclass(frozen=True)
class Facts:
    """What was written into a store. All offsets physical.

    `records`: bytes and fields of each; `queues`: (topic, queue id, queue offset) → offset; `keys`: (hash, offset).
    """

    records: dict[int, tuple[bytes, Record]]
    queues: dict[tuple[str, int, int], int]
    keys: set[tuple[int, int]]

    @property
    def end(self) -> int:
        """Behind the last record."""
        return max(offset + len(data) for offset, (data, _) in self.records.items())


@dataclass(frozen=True)
class Base:
    """A base, unpacked. `settings`: by Apache's names, ROOT in a path is the store. `moments`: older copies of it.
    `release`: of the broker that wrote it.
    """

    name: str
    store: Path
    settings: dict[str, Any]
    facts: Facts = field(repr=False)
    moments: tuple[Path, ...] = ()
    release: str = OLD

    @property
    def segment(self) -> int:
        """Bytes of a segment."""
        return int(self.settings["mappedFileSizeCommitLog"])

    @property
    def layout(self) -> tuple[int, int]:
        """Slots and entries of an index file."""
        return int(self.settings["maxHashSlotNum"]), int(self.settings["maxIndexNum"])

    def log_dirs(self, store: Path) -> list[Path]:
        """The directories of the commit log in a copy of the store."""
        return log_dirs(store, self.settings)

    def conf(self, store: Path) -> str:
        """The text of a broker's properties file for a copy."""
        given = {key: _text(value).replace("ROOT", str(store)) for key, value in self.settings.items()}
        return "".join(f"{key}={value}\n" for key, value in {"storePathRootDir": str(store), **given}.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def log_dirs(store: Path, settings: dict[str, Any]) -> list[Path]:
    """The directories of a store's commit log."""
    given = str(settings.get("storePathCommitLog", "ROOT/commitlog"))
    return [Path(one.replace("ROOT", str(store))) for one in given.split(",")]


def facts(store: Path, settings: dict[str, Any]) -> Facts:
    """Reads an undamaged store."""
    dispatched = bool(settings.get("enableMultiDispatch"))
    log = own.read_log(log_dirs(store, settings))
    records: dict[int, tuple[bytes, Record]] = {}
    queues: dict[tuple[str, int, int], int] = {}
    keys: set[tuple[int, int]] = set()
    size = int(settings["mappedFileSizeCommitLog"])
    for offset, record in own.walk(log):
        start = offset // size * size
        records[offset] = log[start][offset - start : offset - start + record.size], record
        queues.update((place, offset) for place in own.queues_of(record, dispatched=dispatched))
        keys.update((one, offset) for one in own.key_hashes(record))
    return Facts(records, queues, keys)


def hold_against(found: Facts, opened: Opened) -> None:
    """Raises ValueError unless Apache reads the same records, units and keys from a store.

    After a crash it may find less by keys: it deletes the newest index file, and does not make all of it again.
    """
    if sorted(found.records) != [line["physicalOffset"] for line in opened.log]:
        raise ValueError("Apache reads other records")
    units = {(line["cqTopic"], line["cqQueueId"], line["cqOffset"]): line["physicalOffset"] for line in opened.messages}
    if units != found.queues:
        raise ValueError("Apache reads other units")
    by_hash: dict[int, set[int]] = defaultdict(set)
    for one, offset in found.keys:
        by_hash[one].add(offset)
    for line in opened.of_type("query"):
        theirs, ours = set(line["rawIndexOrder"]), by_hash[own.key_hash(line["topic"], line["key"])]
        if theirs != ours and not (opened.abnormal and theirs < ours):
            raise ValueError(f"Apache finds others by {line['topic']} {line['key']}")


def expired_names() -> list[str]:
    """Bases whose front has expired: NAME@N is NAME without its first N segments."""
    return ["tiny@1", "tiny@3", "keys@1", "keys@2", "live@1", "live@3", "far@2", "paths@2", "paths@4"]


def _expire(store: Path, settings: dict[str, Any], segments: int) -> None:
    """Takes the first segments away, and of queues and index the files that show nothing else, but for each last one.

    Source: DefaultMessageStore#deleteExpiredFiles, ConsumeQueue#deleteExpiredFile, IndexService#deleteExpiredFile.
    """
    files = {start: path for path in _listed(log_dirs(store, settings)) if (start := own.named(path.name)) is not None}
    size = int(settings["mappedFileSizeCommitLog"])
    filled = sorted({offset // size * size for offset in facts(store, settings).records})
    for start in filled[:segments]:
        files[start].unlink()
    first = filled[segments]
    for queue in (store / "consumequeue").glob("*/*"):
        for path in _listed([queue])[:-1]:
            if max(place for place, _, _ in struct.iter_unpack(">qiq", path.read_bytes())) >= first:
                break
            path.unlink()
    for path in _listed([store / "index"])[:-1]:
        if int.from_bytes(path.read_bytes()[24:32], "big") >= first:
            break
        path.unlink()


def _listed(directories: list[Path]) -> list[Path]:
    return sorted((path for directory in directories for path in directory.iterdir()), key=lambda path: path.name)


def names() -> list[str]:
    """Every base of 4.9.8 that has not expired."""
    ours = sorted(file.name.removesuffix(".manifest.json") for file in PLACE.glob("*.manifest.json"))
    return [*(one for one in ours if one not in newer_names()), *fixtures.names()]


def newer_names() -> list[str]:
    """Every base of RocketMQ 5: HOW-RELEASE. `mixed` and `crashed` are real brokers', the others message stores'."""
    return [f"{how}-{release}" for release in RELEASES for how in ("mixed", "crashed", "clean", "killed")]


def pack(top: Path, name: str, manifest: dict[str, Any]) -> Path:
    """Packs `top` (store/, and moments/ where there are any) as fixtures/proof/NAME.tar.xz beside its manifest."""
    PLACE.mkdir(exist_ok=True)
    packed = PLACE / f"{name}.tar.xz"
    with tarfile.open(packed, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as tar:
        for path in sorted(top.rglob("*")):
            tar.add(path, str(path.relative_to(top)), recursive=False, filter=_of_nobody)
    manifest = {**manifest, "sha256": hashlib.sha256(packed.read_bytes()).hexdigest()}
    (PLACE / f"{name}.manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return packed


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(entry.mtime)
    return entry


def settings_of(name: str) -> dict[str, Any]:
    """The settings that a base was written with."""
    name = name.partition("@")[0]
    if starts.archive(name).is_file():
        return dict(starts.SETTINGS)
    ours = PLACE / f"{name}.manifest.json"
    found = json.loads(ours.read_text(encoding="utf-8")) if ours.exists() else fixtures.manifest(name)
    settings: dict[str, Any] = found["settings"]
    return settings


def unpack(name: str, into: Path) -> Base:
    """Unpacks a base below `into`, if it is not there already, and reads it."""
    whole, _, segments = name.partition("@")
    if segments:
        if not (into / name).is_dir():
            shutil.copytree(unpack(whole, into).store, into / name / "store", symlinks=True)
            _expire(into / name / "store", settings_of(whole), int(segments))
        return open_base(name, into / name, into / name / "store")
    if (into / name).is_dir():
        ours = into / name / "store"
        return open_base(name, into / name, ours if ours.is_dir() else into / name / name)
    if name in newer_names():
        store = newer.unpack_from(starts.DIRECTORY if starts.archive(name).is_file() else PLACE, name, into / name)
        (store / "lock").unlink(missing_ok=True)
        return open_base(name, into / name, store)
    if (PLACE / f"{name}.tar.xz").exists():
        extract(PLACE / f"{name}.tar.xz", into / name)
        return open_base(name, into / name, into / name / "store")
    return open_base(name, into / name, fixtures.unpack(name, into / name))


def open_base(name: str, top: Path, store: Path) -> Base:
    """A base that is unpacked already."""
    settings = settings_of(name)
    moments = tuple(sorted((top / "moments").iterdir())) if (top / "moments").is_dir() else ()
    release = name.rpartition("-")[2] if name in newer_names() else OLD
    return Base(name, store, settings, facts(store, settings), moments, release)
