"""How kernels are compiled: without the GIL, and kept on disk where a place for it can be written.

numba keeps compiled code beside the module, or in the user's cache directory where that can't be written. Where neither
can be, it would refuse to compile at all: then each process compiles anew (a few seconds, once a long log is read).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

_Kernel = TypeVar("_Kernel", bound="Callable[..., object]")


def compiled(function: _Kernel) -> _Kernel:
    """The kernel, compiled when it is called first."""
    try:
        kernel: _Kernel = njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no place to keep it
        kernel = njit(nogil=True)(function)
    return kernel


def inlined(function: _Kernel) -> _Kernel:
    """A part of kernels that becomes part of each kernel's own code: a call costs more than a small part's work."""
    kernel: _Kernel = njit(nogil=True, inline="always")(function)
    return kernel
