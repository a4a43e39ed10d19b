"""Natives: kernels that Python calls as builtins, and that take and make Python's objects.

A call of a kernel costs as much as two hundred bytes of a body; what is done for each message, a thousand times a call
or once, is done by Python's own objects. A native is compiled as a kernel is, and kept as one
(`engine.log.kernels.kept`), but called with Python's lock held, in a tenth of a microsecond, by CPython's convention
for builtins (METH_FASTCALL): its function takes the address of an object of no use, that of its arguments, and how many
they are, and gives an object, or 0 with an exception set.

Where no code is kept, or can't be, there is no native: the plain function does it. `engine.log.natives` has those that
the engine uses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

from engine.log.kernels.kept import load_native


class Native:
    """A native. `py_func`: its function, which only numba runs."""

    def __init__(self, function: FunctionType) -> None:
        self.py_func = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def kept(self) -> Callable[..., Any] | None:
        """The builtin, of code that a process has kept; None: none has."""
        return load_native(self.py_func)

    def compiled(self) -> Callable[..., Any] | None:
        """The builtin, compiled by numba where no code is kept; None: this machine keeps none."""
        if (known := self.kept()) is not None:
            return known
        importlib.import_module("engine.log.kernels.compiling").keep_native(self.py_func)
        return self.kept()


def native(function: Callable[[Any, Any, Any], Any]) -> Native:
    """Declare one."""
    assert isinstance(function, FunctionType)
    return Native(function)
