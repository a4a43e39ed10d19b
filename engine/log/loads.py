"""What the kernels need below numba's arrays: unaligned loads.

Only kernels import this, and they are imported where a long log is read only: numba takes half a second to load.
Nothing here checks bounds; the callers do, before each load.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I32 = ir.IntType(32)
_I64 = ir.IntType(64)


def address(context: Any, builder: Any, kind: Any, data: Any, at: Any, to: Any) -> Any:
    """Where byte `at` of an array is, as a pointer to what is loaded there."""
    array = context.make_array(kind)(context, builder, data)
    place = builder.gep(builder.bitcast(array.data, ir.IntType(8).as_pointer()), [at])
    return builder.bitcast(place, to.as_pointer())


@intrinsic
def little64(typing: Any, data: Any, at: Any) -> Any:
    """uint64 at a byte position, little endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(address(context, builder, signature.args[0], args[0], args[1], _I64), align=1)

    return types.uint64(data, types.int64), generate


@intrinsic
def big64(typing: Any, data: Any, at: Any) -> Any:
    """int64 at a byte position, big endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(
            builder.load(address(context, builder, signature.args[0], args[0], args[1], _I64), align=1)
        )

    return types.int64(data, types.int64), generate


@intrinsic
def big32(typing: Any, data: Any, at: Any) -> Any:
    """int64 with the value of the int32 at a byte position, big endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(address(context, builder, signature.args[0], args[0], args[1], _I32), align=1)
        return builder.sext(builder.bswap(loaded), _I64)

    return types.int64(data, types.int64), generate


@intrinsic
def equal64(typing: Any, data: Any, at: Any, byte: Any) -> Any:
    """uint64: bit k tells whether the byte at position `at` + k is `byte` (uint8), for 64 bytes."""
    lanes = ir.VectorType(ir.IntType(8), 64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(address(context, builder, signature.args[0], args[0], args[1], lanes), align=1)
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), args[2], _I32(0))
        every = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, 64), [0] * 64))
        return builder.bitcast(builder.icmp_unsigned("==", found, every), _I64)

    return types.uint64(data, types.int64, types.uint8), generate


@intrinsic
def below64(typing: Any, data: Any, at: Any, byte: Any) -> Any:
    """uint64: bit k tells whether the byte at position `at` + k is less than `byte` (uint8), for 64 bytes."""
    lanes = ir.VectorType(ir.IntType(8), 64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(address(context, builder, signature.args[0], args[0], args[1], lanes), align=1)
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), args[2], _I32(0))
        every = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, 64), [0] * 64))
        return builder.bitcast(builder.icmp_unsigned("<", found, every), _I64)

    return types.uint64(data, types.int64, types.uint8), generate


@intrinsic
def first_bit(typing: Any, word: Any) -> Any:
    """int64: how many zero bits a uint64 ends with (64 for 0)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate
