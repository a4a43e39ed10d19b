"""What the kernels need below numba's arrays: unaligned loads and stores, and the carry-less product that folds a CRC.

Only kernels import this, and they are imported where a long log is read only: numba takes half a second to load.
Nothing here checks bounds; the callers do, before each load and store.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_TWO = ir.VectorType(_I64, 2)
_BLOCK = 16
_LANES = 4


def folds_in_hardware() -> bool:
    """Whether the code is compiled for this very processor, and that one has a carry-less product (x86 PCLMULQDQ)."""
    if config.CPU_NAME or config.CPU_FEATURES:  # somebody asked for code that runs elsewhere, too
        return False
    return bool(binding.get_host_cpu_features().get("pclmul"))


def _address(context: Any, builder: Any, kind: Any, data: Any, at: Any, to: Any) -> Any:
    array = context.make_array(kind)(context, builder, data)
    place = builder.gep(builder.bitcast(array.data, ir.IntType(8).as_pointer()), [at])
    return builder.bitcast(place, to.as_pointer())


@intrinsic
def little64(typing: Any, data: Any, at: Any) -> Any:
    """uint64 at a byte position, little endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], args[0], args[1], _I64), align=1)

    return types.uint64(data, types.int64), generate


@intrinsic
def big64(typing: Any, data: Any, at: Any) -> Any:
    """int64 at a byte position, big endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(
            builder.load(_address(context, builder, signature.args[0], args[0], args[1], _I64), align=1)
        )

    return types.int64(data, types.int64), generate


@intrinsic
def big32(typing: Any, data: Any, at: Any) -> Any:
    """int64 with the value of the int32 at a byte position, big endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loaded = builder.load(_address(context, builder, signature.args[0], args[0], args[1], _I32), align=1)
        return builder.sext(builder.bswap(loaded), _I64)

    return types.int64(data, types.int64), generate


@intrinsic
def put_big64(typing: Any, data: Any, at: Any, value: Any) -> Any:
    """Write an int64 at a byte position of a writable uint8 array, big endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _address(context, builder, signature.args[0], args[0], args[1], _I64)
        builder.store(builder.bswap(args[2]), place, align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), generate


@intrinsic
def put_big32(typing: Any, data: Any, at: Any, value: Any) -> Any:
    """Write the low half of an int64 at a byte position of a writable uint8 array, big endian."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _address(context, builder, signature.args[0], args[0], args[1], _I32)
        builder.store(builder.bswap(builder.trunc(args[2], _I32)), place, align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), generate


@intrinsic
def fold(typing: Any, data: Any, at: Any, blocks: Any, far: Any, near: Any) -> Any:
    """16 bytes, as two uint64, that leave the same remainder as `blocks` ≥ 1 blocks of 16 bytes (first register ~0).

    `far` and `near` are pairs of uint64: what a block's two halves are multiplied with to move it 4 blocks on, or one.
    Source of the method: Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ (Intel, 2009).
    """
    pair = types.UniTuple(types.uint64, 2)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, at, blocks, far, near = args
        kind = signature.args[0]
        product = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_TWO, [_TWO, _TWO, ir.IntType(8)]), "llvm.x86.pclmulqdq"
        )

        def vector(low: Any, high: Any) -> Any:
            half = builder.insert_element(ir.Constant(_TWO, ir.Undefined), low, _I32(0))
            return builder.insert_element(half, high, _I32(1))

        def moved(block: Any, powers: Any) -> Any:
            low = builder.call(product, [block, powers, ir.IntType(8)(0x00)])
            high = builder.call(product, [block, powers, ir.IntType(8)(0x11)])
            return builder.xor(low, high)

        def block_at(place: Any) -> Any:
            return builder.load(_address(context, builder, kind, data, place, _TWO), align=1)

        far_powers = vector(*cgutils.unpack_tuple(builder, far, 2))
        near_powers = vector(*cgutils.unpack_tuple(builder, near, 2))
        first = builder.xor(block_at(at), ir.Constant(_TWO, [0xFFFFFFFF, 0]))
        whole = cgutils.alloca_once_value(builder, first)
        place = cgutils.alloca_once_value(builder, builder.add(at, _I64(_BLOCK)))
        left = cgutils.alloca_once_value(builder, builder.sub(blocks, _I64(1)))
        lanes = [cgutils.alloca_once(builder, _TWO) for _ in range(_LANES - 1)]
        with builder.if_then(builder.icmp_signed(">=", blocks, _I64(2 * _LANES))):
            for number, lane in enumerate(lanes, 1):
                builder.store(block_at(builder.add(at, _I64(number * _BLOCK))), lane)
            builder.store(builder.add(at, _I64(_LANES * _BLOCK)), place)
            builder.store(builder.sub(blocks, _I64(_LANES)), left)
            with cgutils.loop_nest(builder, [builder.sdiv(builder.load(left), _I64(_LANES))], _I64):
                here = builder.load(place)
                for number, lane in enumerate([whole, *lanes]):
                    new = block_at(builder.add(here, _I64(number * _BLOCK)))
                    builder.store(builder.xor(moved(builder.load(lane), far_powers), new), lane)
                builder.store(builder.add(here, _I64(_LANES * _BLOCK)), place)
            builder.store(builder.srem(builder.load(left), _I64(_LANES)), left)
            for lane in lanes:
                joined = builder.xor(moved(builder.load(whole), near_powers), builder.load(lane))
                builder.store(joined, whole)
        with cgutils.loop_nest(builder, [builder.load(left)], _I64):
            here = builder.load(place)
            builder.store(builder.xor(moved(builder.load(whole), near_powers), block_at(here)), whole)
            builder.store(builder.add(here, _I64(_BLOCK)), place)
        found = builder.load(whole)
        halves = [builder.extract_element(found, _I32(number)) for number in range(2)]
        return context.make_tuple(builder, pair, halves)

    return pair(data, types.int64, types.int64, pair, pair), generate


@intrinsic
def equal64(typing: Any, data: Any, at: Any, byte: Any) -> Any:
    """uint64: bit k tells whether the byte at position `at` + k is `byte` (uint8), for 64 bytes."""
    lanes = ir.VectorType(ir.IntType(8), 64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(_address(context, builder, signature.args[0], args[0], args[1], lanes), align=1)
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), args[2], _I32(0))
        every = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, 64), [0] * 64))
        return builder.bitcast(builder.icmp_unsigned("==", found, every), _I64)

    return types.uint64(data, types.int64, types.uint8), generate


@intrinsic
def first_bit(typing: Any, word: Any) -> Any:
    """int64: how many zero bits a uint64 ends with (64 for 0)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate
