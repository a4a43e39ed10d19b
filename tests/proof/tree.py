"""A directory as a value: every name with its kind, size and content. Opens regular files only; follows no link."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from pathlib import Path

PAGE = 4096
KINDS = {stat.S_IFDIR: "directory", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFLNK: "link"}


def tree(root: Path, leave_out: Collection[str] = ()) -> dict[str, str]:
    """Every path below `root`; `leave_out`: names in `root` itself."""
    found: dict[str, str] = {}
    stack = [""]
    while stack:
        place = stack.pop()
        for entry in os.scandir(root / place):
            name = os.path.join(place, entry.name)
            if name in leave_out:
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                found[name] = _content(entry.path)
            elif stat.S_ISLNK(mode):
                found[name] = f"link to {os.readlink(entry.path)}"
            else:
                found[name] = KINDS.get(stat.S_IFMT(mode), oct(mode))
                if stat.S_ISDIR(mode):
                    stack.append(name)
    return found


def _content(path: str) -> str:
    """Length and hash of what is not zero, by pages: a timer wheel of RocketMQ 5 is 38 MB of holes."""
    hashed = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0) as file:
        size, at = os.fstat(file.fileno()).st_size, 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // PAGE * PAGE
            except OSError:  # nothing but a hole
                break
            file.seek(at)
            page = file.read(PAGE)
            if page.strip(b"\0"):
                hashed.update(b"%d " % at + page)
            at += PAGE
    return f"{size} {hashed.hexdigest()}"


def changes(before: dict[str, str], after: dict[str, str], most: int = 4) -> str:
    """How two trees differ, in a few words; empty when they don't."""
    said = [
        f"{path}: {before.get(path, 'nothing')} → {after.get(path, 'nothing')}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]
    return "; ".join(said[:most]) + (f"; and {len(said) - most} more" if len(said) > most else "")
