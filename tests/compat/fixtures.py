"""The stores in `fixtures/`: written by Apache 4.9.8, packed beside what it was given and what it reads from them."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import lzma
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.archives import extract

from .apache import Line, Sizes

FIXTURES = Path(__file__).parents[2] / "fixtures"


def names() -> list[str]:
    """Every fixture."""
    return sorted(file.name.removesuffix(".manifest.json") for file in FIXTURES.glob("*.manifest.json"))


def manifest(name: str) -> Line:
    """How the fixture was made, and what is in it."""
    found: Line = json.loads((FIXTURES / f"{name}.manifest.json").read_text(encoding="utf-8"))
    return found


def sizes(name: str) -> Sizes:
    """The sizes of the fixture's files."""
    settings = manifest(name)["settings"]
    return Sizes(
        settings["mappedFileSizeCommitLog"],
        settings["mappedFileSizeConsumeQueue"],
        settings["maxHashSlotNum"],
        settings["maxIndexNum"],
    )


def unpack(name: str, into: Path) -> Path:
    """Unpacks a fresh copy of the fixture; gives the store's directory, `into/name`."""
    packed = FIXTURES / f"{name}.tar.xz"
    if sha256(packed) != manifest(name)["sha256"]:
        raise ValueError(f"{packed} is not what its manifest says")
    into.mkdir(parents=True, exist_ok=True)
    extract(packed, into)
    return into / name


def puts(name: str) -> Iterator[Line]:
    """What Apache was given, one line a put, with its answer."""
    return read_lines(FIXTURES / f"{name}.puts.jsonl.xz")


def dump(name: str) -> Iterator[Line]:
    """What Apache reads from a copy of the fixture: lines of the caller's own."""
    return map(dict, _kept(FIXTURES / f"{name}.dump.jsonl.xz"))


@functools.lru_cache(maxsize=4)
def _kept(file: Path) -> tuple[Line, ...]:
    """Many tests of a process look into the same two."""
    return tuple(read_lines(file))


def cases() -> Iterator[Line]:
    """The damage cases, and Apache's outcome for each."""
    return read_lines(FIXTURES / "differential.jsonl.xz")


def read_lines(file: Path) -> Iterator[Line]:
    """The JSON lines of a compressed file."""
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def write_lines(file: Path, lines: Iterable[Line]) -> None:
    """Compresses JSON lines into a file."""
    with lzma.open(file, "wt", preset=9 | lzma.PRESET_EXTREME, encoding="utf-8") as out:
        out.writelines(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)


def sha256(file: Path) -> str:
    """The digest of a file, in hex."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def pack(store: Path, name: str, mtime: int, into: Path = FIXTURES) -> Path:
    """Packs a store as a fixture: the same bytes for the same files, in order, owned by nobody in particular."""
    packed = into / f"{name}.tar.xz"
    with tarfile.open(packed, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as tar:
        for path in [store, *sorted(store.rglob("*"))]:
            _add(tar, path, f"{name}/{path.relative_to(store)}".removesuffix("/."), mtime)
    return packed


def _add(tar: tarfile.TarFile, path: Path, name: str, mtime: int) -> None:
    entry: Any = tarfile.TarInfo(name)
    entry.mtime = mtime
    entry.mode = 0o755 if path.is_dir() else 0o644
    if path.is_dir():
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
        return
    content = path.read_bytes()
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
