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
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from engine.log.kernels.kept import FAILED, LastTuple, flattened, has_some, load

if TYPE_CHECKING:
    from engine.log.kernels.kept import KeptCode, Kinds

_Kernel = TypeVar("_Kernel", bound="Callable[..., object]")

LOGGER = logging.getLogger("rstore.kernels")
"""Hears of each kernel that is about to be compiled, at level INFO."""
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
        self._tuple = LastTuple()
        self.__name__ = function.__name__
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Run it: by code that is kept, else by numba, from then on.

        Code that fails says no more: numba runs it again, and raises what is to be raised.
        """
        if self._by_numba is None:
            flat = flattened(arguments, self._tuple)
            if flat is not None:
                kinds, words = flat
                try:
                    code = self._kept[kinds]
                except KeyError:
                    code = self._kept[kinds] = load(self.py_func, kinds)
                if code is not None and (result := code.run(words)) is not FAILED:
                    return result
            self._take(self.made())
        result = self._by_numba(*arguments)
        if self._new:
            importlib.import_module(_COMPILING).keep(self.py_func, self._new, arguments)
        return result

    def _take(self, kernel: Any) -> None:
        self._new = importlib.import_module(_COMPILING).new_objects(kernel)
        self._by_numba = kernel


def later(make: Callable[[], Any]) -> Any:
    """A value that kernels use, made when the first of them is compiled: `MadeLater`."""
    return MadeLater(make)


def compiled(function: _Kernel) -> _Kernel:
    """The kernel, compiled when it is called first."""
    return cast(_Kernel, Kernel(cast(FunctionType, function)))


def inlined(function: _Kernel) -> _Kernel:
    """A part of kernels that becomes part of each kernel's own code: a call costs more than a small part's work."""
    return cast(_Kernel, Inlined(cast(FunctionType, function)))
