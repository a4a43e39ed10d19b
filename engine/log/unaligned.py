"""What kernels that write need below numba's arrays: unaligned stores, and copies without an array for each piece.

As with `engine.log.loads`, nothing here checks bounds; the callers do, before each store.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)


def _place(context: Any, builder: Any, kind: Any, data: Any, at: Any) -> Any:
    array = context.make_array(kind)(context, builder, data)
    return builder.gep(builder.bitcast(array.data, _I8.as_pointer()), [at])


def _stored(value: Any, place: Any, builder: Any, to: Any) -> None:
    builder.store(builder.bswap(value), builder.bitcast(place, to.as_pointer()), align=1)


@intrinsic
def put64(typing: Any, data: Any, at: Any, value: Any) -> Any:
    """Store an int64 at a byte position, big endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _stored(args[2], _place(context, builder, signature.args[0], args[0], args[1]), builder, _I64)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), generate


@intrinsic
def put32(typing: Any, data: Any, at: Any, value: Any) -> Any:
    """Store the low 32 bits of an int64 at a byte position, big endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        low = builder.trunc(args[2], _I32)
        _stored(low, _place(context, builder, signature.args[0], args[0], args[1]), builder, _I32)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), generate


@intrinsic
def copy(typing: Any, target: Any, at: Any, source: Any, begin: Any, length: Any) -> Any:
    """Copy `length` bytes from source[begin:] to target[at:]; the two don't overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _place(context, builder, signature.args[0], args[0], args[1])
        out_of = _place(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, to, out_of, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate
