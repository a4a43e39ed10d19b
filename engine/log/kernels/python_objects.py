"""What natives use of CPython: functions of its C API, and memory at an address. `engine.log.kernels.python_api` has
them by name; this module imports numba: that happens when a native is compiled.

An object is its address, an int64; 0 is no object, and then an exception is set. Nothing here checks what an address
leads to: the natives do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_I8, _I64 = ir.IntType(8), ir.IntType(64)


def function(name: str, words: int, result: str) -> Any:
    """A function of the C API that takes so many words. `result`: int64, int32 or void."""
    return types.ExternalFunction(name, getattr(types, result)(*[types.int64] * words))


def load(bits: int, *, signed: bool = False, swapped: bool = False) -> Any:
    """A function for natives: the number of so many bits at an address, as int64. `swapped`: it is big endian."""
    kind = ir.IntType(bits)

    def typed(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
            if swapped:
                value = builder.bswap(value)
            if bits == _I64.width:
                return value
            return builder.sext(value, _I64) if signed else builder.zext(value, _I64)

        return types.int64(types.int64), generate

    return intrinsic(typed)


def store(bits: int, *, swapped: bool = True) -> Any:
    """A function for natives: store the low bits of an int64 at an address. `swapped`: big endian."""
    kind = ir.IntType(bits)

    def typed(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = args[1] if bits == _I64.width else builder.trunc(args[1], kind)
            stored = builder.bswap(value) if swapped and bits > _I8.width else value
            builder.store(stored, builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(typed)


@intrinsic
def move(typing: Any, to: Any, out_of: Any, size: Any) -> Any:
    """Copy so many bytes from an address to one; the two don't overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (builder.inttoptr(address, _I8.as_pointer()) for address in args[:2])
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def room(words: int) -> Any:
    """A function for natives: the address of so many words of 8 bytes, all 0, on the stack: the same at each call."""

    def typed(typing: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.ptrtoint(cgutils.alloca_once(builder, ir.ArrayType(_I64, words), zfill=True), _I64)

        return types.int64(), generate

    return intrinsic(typed)


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], _I8.as_pointer())

    return types.CPointer(types.uint8)(types.int64), generate


@njit(inline="always")
def memory(address: Any, size: Any) -> Any:
    """uint8[size] at an address, for kernels; what is there must stay there while it is used."""
    return carray(_pointer(address), (size,), np.uint8)
