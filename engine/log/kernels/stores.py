"""What kernels that write need below numba's arrays: unaligned stores, and copies without an array for each piece.

As with `engine.log.kernels.loads`, nothing here checks bounds; the callers do, before each store.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.log.kernels.intrinsics import BASE64_TO
from engine.log.kernels.loads import address

_I8 = ir.IntType(8)
_I16 = ir.IntType(16)
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


@intrinsic
def put16(typing: Any, data: Any, at: Any, table: Any, number: Any) -> Any:
    """Copy the `number`-th pair of bytes of `table` to data[at:]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = address(context, builder, signature.args[0], args[0], args[1], _I16)
        pair = builder.shl(args[3], _I64(1))
        builder.store(
            builder.load(address(context, builder, signature.args[2], args[2], pair, _I16), align=1), to, align=1
        )
        return context.get_dummy_value()

    return types.void(data, types.int64, table, types.int64), generate


_ADDED = ((26, 6), (52, -75), (62, -15), (63, 3))
"""From the digit on, what is added to its distance to `A`: lower case, figures, plus, slash."""


@intrinsic
def base64(typing: Any, target: Any, at: Any, source: Any, begin: Any) -> Any:
    """Put `BASE64_FROM` bytes of source[begin:] to target[at:] as letters; 64 bytes of the source can be read there."""
    lanes, words = ir.VectorType(_I8, BASE64_TO), ir.VectorType(_I32, BASE64_TO // 4)
    order = [3 * (i // 4) + (2 - i % 4) if i % 4 < 3 else BASE64_TO for i in range(BASE64_TO)]

    def alike(kind: Any, value: int) -> Any:
        return ir.Constant(kind, [value] * kind.count)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(address(context, builder, signature.args[2], args[2], args[3], lanes), align=1)
        picked = builder.shuffle_vector(loaded, alike(lanes, 0), ir.Constant(ir.VectorType(_I32, BASE64_TO), order))
        three = builder.bitcast(picked, words)  # 24 bits in each, the first byte in front
        digits = builder.lshr(three, alike(words, 18))
        for shift, mask in ((-4, 0x3F00), (10, 0x3F0000), (24, 0x3F000000)):
            moved = (builder.lshr if shift < 0 else builder.shl)(three, alike(words, abs(shift)))
            digits = builder.or_(digits, builder.and_(moved, alike(words, mask)))
        number = builder.bitcast(digits, lanes)
        letter = builder.add(number, alike(lanes, ord("A")))
        for first, more in _ADDED:
            is_after = builder.icmp_unsigned(">=", number, alike(lanes, first))
            letter = builder.select(is_after, builder.add(letter, alike(lanes, more & 0xFF)), letter)
        builder.store(letter, address(context, builder, signature.args[0], args[0], args[1], lanes), align=1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64), generate
