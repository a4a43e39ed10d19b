"""How much space the file systems have, and how much a file takes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from engine.dataclass import dataclass
from engine.files.directories import Directories
from engine.files.operations import Operation
from engine.files.seam import ROOT

NOBODYS_BLOCKS = 4096
"""Blocks that ext4 gives to nobody's data, at most (ext4_calculate_resv_clusters)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A file system's space, in bytes: all of it, used, and what an ordinary user may still take."""

    total: int
    used: int
    usable: int


class FileSystems(Directories):
    """See the module. A part of `Disk`."""

    def usage(self, path: str) -> Usage:
        """The space of the file system that holds `path`. Root's reserve is neither used nor usable."""
        with self.doing(Operation.STAT, path):
            total, used, usable = shutil.disk_usage(path)
        return Usage(total, used, usable)

    def writable(self, path: str) -> int:
        """Bytes that this process may still write where `path` is: root gets what ext4 keeps back for it, too.

        Other file systems count as free what is nobody's reserve (btrfs). Source: ext4_has_free_clusters of Linux.
        """
        usage = self.usage(path)
        if os.geteuid() != ROOT or not self.libc.is_ext(path) or not _is_root_everywhere():
            return usage.usable
        with self.doing(Operation.STAT, path):
            kept = NOBODYS_BLOCKS * os.statvfs(path).f_bsize
        return max(usage.usable, usage.total - usage.used - kept)

    def device(self, path: str) -> int:
        """The number of the file system that holds `path`."""
        with self.doing(Operation.STAT, path):
            return Path(path).stat().st_dev

    def blocks(self, path: str) -> int:
        """Bytes of the blocks that a file has, those that were reserved and not yet written among them."""
        with self.doing(Operation.STAT, path):
            return Path(path).stat().st_blocks * 512

    def disk_used_ratio(self, path: str) -> float:
        """Used ÷ (used + usable), rounded up to a whole per cent (Apache UtilAll.getDiskPartitionSpaceUsedPercent).

        Returns −1.0 for a path that is not there, as Apache does.
        """
        if not self.exists(path):
            return -1.0
        usage = self.usage(path)
        entire = usage.used + usage.usable
        return -1.0 if entire <= 0 else -(-usage.used * 100 // entire) / 100


def _is_root_everywhere() -> bool:
    """Whether user 0 is root for the file systems, too, and not only in a user namespace (user_namespaces(7))."""
    try:
        first, outside, count = map(int, Path("/proc/self/uid_map").read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return False
    return (first, outside, count) == (ROOT, ROOT, (1 << 32) - 1)
