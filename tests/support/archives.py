"""Archives of stores, unpacked alike on every Python: `tarfile` has filters since 3.11.4, Debian 12 ships 3.11.2."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path, PurePosixPath


def extract(archive: Path, into: Path) -> set[str]:
    """Unpack an archive of files and directories into `into`, holes kept.

    What it holds is looked at before a byte is written, here and not by a filter, so that it is the same everywhere.

    Returns:
        The names at its top.

    Raises:
        ValueError: a member that would lie outside of `into`, or is a link, a device or a FIFO.
    """
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        for member in members:
            _check(member)
            member.mode &= 0o777
            member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        # what was checked needs no filter, but later Pythons want one named
        tar.extractall(into, members, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return {PurePosixPath(member.name).parts[0] for member in members}


def _check(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{member.name!r} would lie outside")
    if not (member.isreg() or member.isdir()):
        raise ValueError(f"{member.name!r} is neither a file nor a directory")
