"""How kernels are compiled: without the GIL, and kept on disk where a place for it can be written.

Compiled code is kept in the user's cache directory, below a name that is made of the kernels' sources: numba's own
places go by a source file's modification time, so that every reinstallation of the same version compiled anew. Where
that can't be written, or NUMBA_CACHE_DIR names another place, it is numba's choice: there, beside the module. Where
nothing can be written, each process compiles anew (some seconds, once a long log is read).

That something is compiled is said to `LOGGER` before it begins; the command line shows it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numba import config, njit
from numba.core.caching import FunctionCache

from engine.files.cache import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable

_Kernel = TypeVar("_Kernel", bound="Callable[..., object]")

LOGGER = logging.getLogger("rstore.kernels")
"""Hears of each kernel that is about to be compiled, at level INFO."""
_HERE = Path(__file__).parent
_SHARED = (_HERE.parents[1] / "format", _HERE)
"""Directories of what kernels are made of, beside their own file: layouts, kernels that they call, loads and stores."""
_KEPT_S = 60 * 86400
"""What other versions have compiled goes when it has not been used for so long."""


def compiled(function: _Kernel) -> _Kernel:
    """The kernel, compiled when it is called first."""
    kernel: _Kernel = njit(nogil=True)(function)
    try:
        kernel._cache = _Kept(function)  # type: ignore[attr-defined]
    except RuntimeError:  # no place to keep it
        LOGGER.debug("cannot write the cache of compiled kernels")
    return kernel


def inlined(function: _Kernel) -> _Kernel:
    """A part of kernels that becomes part of each kernel's own code: a call costs more than a small part's work."""
    kernel: _Kernel = njit(nogil=True, inline="always")(function)
    return kernel


class _Place:
    """Where one kernel is kept, as numba asks for it (numba.core.caching: a cache locator)."""

    def __init__(self, function: Callable[..., object], file: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._stamp = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        self._directory = cache_directory() / "kernels" / _digest_of_shared()

    def ensure_cache_path(self) -> None:
        """Make the directory. Raises OSError: it can't be written."""
        if not self._directory.is_dir():
            self._directory.mkdir(parents=True, exist_ok=True)  # another process may just make it
            _forget_others(self._directory)
        tempfile.TemporaryFile(dir=self._directory).close()

    def get_cache_path(self) -> str:
        """The directory."""
        return str(self._directory)

    def get_source_stamp(self) -> str:
        """What is kept under another one is compiled anew."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """Tells kernels of the same name apart."""
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., object], file: str) -> _Place | None:
        """The place of a kernel; None: numba looks for one."""
        if config.CACHE_DIR:
            return None
        try:
            place = cls(function, file)
            place.ensure_cache_path()
        except (OSError, RuntimeError):
            return None
        return place


class _Kept(FunctionCache):  # type: ignore[misc]
    """numba's cache of a kernel, at our place first, which says when there is nothing in it."""

    _impl_class = type(
        "_KeptImpl",
        (FunctionCache._impl_class,),
        {"_locator_classes": [_Place, *FunctionCache._impl_class._locator_classes]},
    )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        overload = super().load_overload(sig, target_context)
        if overload is None:
            LOGGER.info("compiling %s", self._impl.filename_base)
        return overload


@functools.cache
def _digest_of_shared() -> str:
    """Of what all kernels are made of: constants of other files are compiled into them, which numba doesn't notice."""
    digest = hashlib.sha256()
    for directory in _SHARED:
        for path in sorted(directory.iterdir()):
            if path.suffix == ".py":
                digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _forget_others(directory: Path) -> None:
    for other in directory.parent.iterdir():
        with contextlib.suppress(OSError):  # another process may just remove it
            if other != directory and other.stat().st_mtime < time.time() - _KEPT_S:
                shutil.rmtree(other, ignore_errors=True)
