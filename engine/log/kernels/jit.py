"""How kernels are declared: compiled without the GIL, by numba, which is imported only where no compiled code is kept.

`engine.log.kernels.kept` has what one process has compiled for the next one; `engine.log.kernels.compiling` compiles.
So the modules of kernels import no numba where some is kept: what they take of it, and what is dear to make, is made
`later`. Where none is kept numba is imported with them: an ImportError comes then, and not in the middle of a scan.

That something is compiled is said to `LOGGER` before it begins; the command line shows it.
"""

from __future__ import annotations

import functools
import importlib
import logging
import threading
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from engine.log.kernels.kept import FAILED, flattened, has_some, load

if TYPE_CHECKING:
    from engine.log.kernels.kept import KeptCode, Kinds

_Kernel = TypeVar("_Kernel", bound="Callable[..., object]")

LOGGER = logging.getLogger("rstore.kernels")
"""Hears of each kernel that is about to be compiled, at level INFO."""
_CALLS = 8192
"""Of a kernel by kept code, before it is numba's: a call costs some 20 us more than numba's does, so that by then
numba's import would have been paid. A command does not come there; a daemon does, which calls kernels for a few records
at a time."""
_COMPILING = "engine.log.kernels.compiling"

if not has_some():  # else numba has worked here, with just these versions
    importlib.import_module("numba")


class MadeLater:
    """A value of a kernel's module that is made when numba compiles a kernel with it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = functools.cache(make)

    def made(self) -> Any:
        """The value itself, as numba is to see it."""
        return self._make()


class Inlined(MadeLater):
    """A part of kernels. `py_func`: the function, not compiled."""

    def __init__(self, function: FunctionType) -> None:
        super().__init__(lambda: importlib.import_module(_COMPILING).inlined(function))
        self.py_func = function


class Kernel(MadeLater):
    """A kernel, called as its function. `py_func`: that function, not compiled."""

    def __init__(self, function: FunctionType) -> None:
        super().__init__(lambda: importlib.import_module(_COMPILING).compiled(function))
        self.py_func = function
        self._kept: dict[Kinds, KeptCode | None] = {}
        self._by_numba: Any = None
        self._new: dict[Any, Any] = {}
        self._left = _CALLS
        self.__name__ = function.__name__
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Run it: by code that is kept, else by numba, from then on.

        Code that fails says no more: numba runs it again, and raises what is to be raised.
        """
        if self._by_numba is None:
            flat = flattened(arguments)
            if flat is not None:
                kinds, words = flat
                try:
                    code = self._kept[kinds]
                except KeyError:
                    code = self._kept[kinds] = load(self.py_func, kinds)
                if code is not None:
                    self._count(arguments)
                    if (result := code.run(words)) is not FAILED:
                        return result
            self._take(self.made())
        result = self._by_numba(*arguments)
        if self._new:
            importlib.import_module(_COMPILING).keep(self.py_func, self._new, arguments)
        return result

    def _count(self, arguments: tuple[Any, ...]) -> None:
        """A call by kept code; after many, numba gets ready beside them: nobody waits for its import."""
        if self._left > 0:
            self._left -= 1
            if self._left == 0:
                alike = _alike(arguments)  # the arrays themselves may be of a file that is about to be closed
                threading.Thread(target=self._get_ready, args=(alike,), name=f"numba: {self.__name__}").start()

    def _get_ready(self, alike: tuple[Any, ...]) -> None:
        try:
            kernel = self.made()
            importlib.import_module(_COMPILING).prepare(kernel, alike)
        except Exception as error:  # noqa: BLE001 - kept code goes on
            LOGGER.debug("numba does not take %s: %r", self.__name__, error)
            return
        self._take(kernel)

    def _take(self, kernel: Any) -> None:
        self._new = importlib.import_module(_COMPILING).new_objects(kernel)
        self._by_numba = kernel


def _alike(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of the same kinds without their content."""
    alike: list[Any] = []
    for value in arguments:
        if isinstance(value, np.ndarray):
            empty = np.empty((0,) * value.ndim, value.dtype)
            empty.flags.writeable = value.flags.writeable
            alike.append(empty)
        elif isinstance(value, tuple):
            alike.append(cast(Any, type(value))(*_alike(value)))
        else:
            alike.append(value)
    return tuple(alike)


def later(make: Callable[[], Any]) -> Any:
    """A value that kernels use, made when the first of them is compiled: `MadeLater`."""
    return MadeLater(make)


def compiled(function: _Kernel) -> _Kernel:
    """The kernel, compiled when it is called first."""
    return cast(_Kernel, Kernel(cast(FunctionType, function)))


def inlined(function: _Kernel) -> _Kernel:
    """A part of kernels that becomes part of each kernel's own code: a call costs more than a small part's work."""
    return cast(_Kernel, Inlined(cast(FunctionType, function)))
