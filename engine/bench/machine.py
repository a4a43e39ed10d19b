"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_MIB = 1 << 20


def machine(work: Path) -> dict[str, str]:
    """Facts about this machine and the disk below `work`, by name, as text."""
    cores = len(os.sched_getaffinity(0))
    return {
        "processor": f"{_processor()}, {cores} core{'s' if cores > 1 else ''}",
        "memory": f"{_memory() // _MIB} MiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": _disk(work),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": _version("numpy"),
        "numba": _version("numba"),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _disk(work: Path) -> str:
    """The file system and the kind of device, as far as Linux says."""
    kind, device = _mount(work.resolve())
    number = os.stat(work).st_dev
    block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    for place in (block, block.parent):
        try:
            rotates = (place / "queue" / "rotational").read_text(encoding="ascii").strip() == "1"
        except OSError:
            continue
        return f"{kind} on {device} (the kernel says: {'rotating' if rotates else 'not rotating'})"
    return f"{kind} on {device}"


def _mount(path: Path) -> tuple[str, str]:
    """File system type and device of the mount that `path` lies in."""
    mount, longest = ("unknown file system", "unknown device"), -1
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return mount
    for line in lines:
        device, place, kind, *_ = line.split()
        if len(place) > longest and path.is_relative_to(place):
            mount, longest = (kind, device), len(place)
    return mount


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
