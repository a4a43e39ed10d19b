"""What the kernels need below numba's arrays: unaligned loads.

Only kernels import this, and they are imported where a long log is read only: numba takes half a second to load.
Nothing here checks bounds; the callers do, before each load.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.log.kernels.intrinsics import LEAST_ALIKE

_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_NEAREST, _OF_DATA = 3, 1
"""Arguments of llvm.prefetch."""


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


def _soon(to_write: int) -> Any:
    """A function for kernels: the processor begins to fetch what lies at a byte position. It takes (data, at)."""

    def typed(typing: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = address(context, builder, signature.args[0], args[0], args[1], _I8)
            kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", [_I8.as_pointer()], kind)
            builder.call(prefetch, [place, _I32(to_write), _I32(_NEAREST), _I32(_OF_DATA)])
            return context.get_dummy_value()

        return types.void(data, types.int64), generate

    return intrinsic(typed)


soon_read = _soon(0)
soon_written = _soon(1)


def _compared64(sign: str) -> Any:
    """A function for kernels: bit k of its uint64 tells how the byte at position `at` + k compares with `byte` (uint8).

    It takes (data, at, byte). `sign`: == or <, of unsigned bytes.
    """
    lanes = ir.VectorType(ir.IntType(8), 64)

    def typed(typing: Any, data: Any, at: Any, byte: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = builder.load(address(context, builder, signature.args[0], args[0], args[1], lanes), align=1)
            one = builder.insert_element(ir.Constant(lanes, ir.Undefined), args[2], _I32(0))
            every = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, 64), [0] * 64))
            return builder.bitcast(builder.icmp_unsigned(sign, vector, every), _I64)

        return types.uint64(data, types.int64, types.uint8), generate

    return intrinsic(typed)


equal64 = _compared64("==")
below64 = _compared64("<")


def any_of(mask: bytes) -> Any:
    """A function for kernels: whether any of the bits of `mask` is set in the bytes from a position on: (data, at)."""
    size = len(mask)
    lanes = ir.VectorType(ir.IntType(8), size)

    def typed(typing: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = builder.load(address(context, builder, signature.args[0], args[0], args[1], lanes), align=1)
            masked = builder.bitcast(builder.and_(vector, ir.Constant(lanes, list(mask))), ir.IntType(8 * size))
            return builder.icmp_unsigned("!=", masked, ir.IntType(8 * size)(0))

        return types.boolean(data, types.int64), generate

    return intrinsic(typed)


def alike_below(limit: int) -> Any:
    """A function for kernels: whether two ranges have the same bytes below `limit` at the same places.

    It takes (data, one, other, length): two positions, and how many bytes, at least `LEAST_ALIKE`.
    """
    lanes = ir.VectorType(ir.IntType(8), LEAST_ALIKE)
    shift = LEAST_ALIKE.bit_length() - 1

    def typed(typing: Any, data: Any, one: Any, other: Any, length: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data, one, other, length = args
            limits = ir.Constant(lanes, [limit] * LEAST_ALIKE)

            def clipped(at: Any) -> Any:
                vector = builder.load(address(context, builder, signature.args[0], data, at, lanes), align=1)
                return builder.select(builder.icmp_unsigned("<", vector, limits), vector, limits)

            def differing(at: Any) -> Any:
                return builder.xor(clipped(builder.add(one, at)), clipped(builder.add(other, at)))

            last = differing(builder.sub(length, _I64(LEAST_ALIKE)))
            count = cgutils.alloca_once_value(builder, last)
            steps = builder.lshr(builder.sub(length, _I64(1)), _I64(shift))  # before the last, which may overlap
            with cgutils.loop_nest(builder, [steps], _I64) as (number,):
                here = differing(builder.shl(number, _I64(shift)))
                builder.store(builder.or_(builder.load(count), here), count)
            whole = ir.IntType(8 * LEAST_ALIKE)
            return builder.icmp_unsigned("==", builder.bitcast(builder.load(count), whole), whole(0))

        return types.boolean(data, types.int64, types.int64, types.int64), generate

    return intrinsic(typed)


@intrinsic
def first_bit(typing: Any, word: Any) -> Any:
    """int64: how many zero bits a uint64 ends with (64 for 0)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate
