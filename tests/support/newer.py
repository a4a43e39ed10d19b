"""The stores of RocketMQ 5 in fixtures/rocketmq5, as real 5.5.0 brokers left them."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "rocketmq5"
NAMES = sorted(path.name.removesuffix(".manifest.json") for path in DIRECTORY.glob("*.manifest.json"))
_BLOCK = 1 << 16


def manifest(name: str) -> dict[str, Any]:
    """How the store was made, and what was sent."""
    found: dict[str, Any] = json.loads((DIRECTORY / f"{name}.manifest.json").read_text(encoding="utf-8"))
    return found


def unpack(name: str, into: Path) -> Path:
    """The store at `into/NAME`; zeros become holes, as a timer wheel is 38 MB of them."""
    return _unpack(name, manifest(name)["sha256"], into)


def unpack_files(name: str, into: Path) -> Path:
    """The tiered files of a store, at `into/NAME-files`: its tieredStoreFilePath."""
    return _unpack(f"{name}-files", manifest(name)["files"], into)


def _unpack(name: str, digest: str, into: Path) -> Path:
    assert hashlib.sha256((DIRECTORY / f"{name}.tar.xz").read_bytes()).hexdigest() == digest
    return unpack_from(DIRECTORY, name, into)


def unpack_from(directory: Path, name: str, into: Path) -> Path:
    """A store of another directory of fixtures, at `into/NAME`."""
    with tarfile.open(directory / f"{name}.tar.xz") as tar:
        for member in tar:
            path = into / member.name
            if member.isdir():
                path.mkdir(parents=True)
                continue
            source = tar.extractfile(member)
            assert source is not None
            with path.open("wb") as file:
                while block := source.read(_BLOCK):
                    if block.count(0) == len(block):
                        file.seek(len(block), 1)
                    else:
                        file.write(block)
                file.truncate(member.size)
    return into / name
