"""What kernels that write need below numba's arrays: unaligned stores, and copies without an array for each piece.

As with `engine.log.kernels.loads`, nothing here checks bounds; the callers do, before each store.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.log.kernels.loads import address

_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)


@intrinsic
def put64(typing: Any, data: Any, at: Any, value: Any) -> Any:
    """Store an int64 at a byte position, big endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = address(context, builder, signature.args[0], args[0], args[1], _I64)
        builder.store(builder.bswap(args[2]), place, align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), generate


@intrinsic
def put32(typing: Any, data: Any, at: Any, value: Any) -> Any:
    """Store the low 32 bits of an int64 at a byte position, big endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = address(context, builder, signature.args[0], args[0], args[1], _I32)
        builder.store(builder.bswap(builder.trunc(args[2], _I32)), place, align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), generate


@intrinsic
def copy(typing: Any, target: Any, at: Any, source: Any, begin: Any, length: Any) -> Any:
    """Copy `length` bytes from source[begin:] to target[at:]; the two don't overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = address(context, builder, signature.args[0], args[0], args[1], _I8)
        out_of = address(context, builder, signature.args[2], args[2], args[3], _I8)
        cgutils.raw_memcpy(builder, to, out_of, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate
