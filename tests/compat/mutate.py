"""Damages a copy of a store as a differential case says.

Each op is explicit, so that the same ops give the same bytes on every machine. Paths are relative to the store:

    {"op": "zero", "path": P, "offset": N, "length": L}     bytes become 0
    {"op": "write", "path": P, "offset": N, "hex": "..."}   bytes are replaced
    {"op": "xor", "path": P, "offset": N, "hex": "..."}     bytes are xor-ed
    {"op": "delete", "path": P}                             a file, or a directory with all in it
    {"op": "create", "path": P, "size": N}                  a new file of N zero bytes
    {"op": "resize", "path": P, "size": N}                  cut, or extended with zero bytes
    {"op": "copy", "from": P, "to": P}                      a file, or a directory with all in it

An op that does not fit the store raises `Misfit`; nothing is passed over in silence.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

Op = dict[str, Any]


class Misfit(Exception):
    """The op can't be done to this store."""


def apply(store: Path, ops: Iterable[Op]) -> None:
    """Does all ops to the store, in order."""
    for op in ops:
        try:
            _OPS[op["op"]](store, op)
        except (OSError, KeyError) as e:
            raise Misfit(f"{op}: {e}") from e


def _inside(store: Path, relative: str) -> Path:
    path = PurePosixPath(relative)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Misfit(f"not a path inside the store: {relative!r}")
    return store / path


def _overwrite(store: Path, op: Op, length: int, change: Callable[[bytes], bytes]) -> None:
    with _inside(store, op["path"]).open("r+b") as file:
        old = os.pread(file.fileno(), length, op["offset"])
        if len(old) != length:
            raise Misfit(f"{op}: past the end of the file")
        os.pwrite(file.fileno(), change(old), op["offset"])


def _zero(store: Path, op: Op) -> None:
    _overwrite(store, op, op["length"], lambda old: bytes(len(old)))


def _write(store: Path, op: Op) -> None:
    new = bytes.fromhex(op["hex"])
    _overwrite(store, op, len(new), lambda _: new)


def _xor(store: Path, op: Op) -> None:
    mask = bytes.fromhex(op["hex"])
    _overwrite(store, op, len(mask), lambda old: bytes(a ^ b for a, b in zip(old, mask, strict=True)))


def _delete(store: Path, op: Op) -> None:
    path = _inside(store, op["path"])
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _create(store: Path, op: Op) -> None:
    path = _inside(store, op["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.truncate(op["size"])


def _resize(store: Path, op: Op) -> None:
    with _inside(store, op["path"]).open("r+b") as file:
        file.truncate(op["size"])


def _copy(store: Path, op: Op) -> None:
    source, target = _inside(store, op["from"]), _inside(store, op["to"])
    if target.exists():
        raise Misfit(f"{op}: exists already")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


_OPS: dict[str, Callable[[Path, Op], None]] = {
    "zero": _zero,
    "write": _write,
    "xor": _xor,
    "delete": _delete,
    "create": _create,
    "resize": _resize,
    "copy": _copy,
}
