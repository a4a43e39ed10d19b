"""The carry-less product that folds a CRC, as wide as the processor has it: 16, 32 or 64 bytes at once.

Theory: the register is a remainder of polynomials over GF(2), bits reflected. A block of 16 bytes moves d bits on when
its halves are multiplied with x^(d+32) and x^(d−32) mod P, and is then added (XOR) to the block that is there: so a
body shrinks to its last 16 bytes. A body whose length is no multiple of 16 is taken for one with zeros before it, which
change nothing: its first bytes, the register's first value added, are moved up in a block of their own. So there are no
odd bytes. The last block's remainder is four products more (the last two are Barrett's).

Source of the method: Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ (Intel, 2009).
Nothing here checks bounds; the callers do, before each call.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from engine.log.kernels.loads import address

_POLYNOMIAL = 0x104C11DB7
_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_I128 = ir.IntType(128)
_TWO = ir.VectorType(_I64, 2)
_BLOCK = 16
_LANES = 4
_PRODUCTS = {1: "llvm.x86.pclmulqdq", 2: "llvm.x86.pclmulqdq.256", 4: "llvm.x86.pclmulqdq.512"}


def _blocks_at_once() -> int:
    """How many blocks of 16 bytes the processor that code is compiled for multiplies at once; 0: none."""
    if config.CPU_NAME or config.CPU_FEATURES:  # somebody asked for code that runs elsewhere, too
        return 0
    has = binding.get_host_cpu_features()
    if not has.get("pclmul"):
        return 0
    if not has.get("vpclmulqdq"):
        return 1
    return 4 if has.get("avx512f") else 2


def _power(exponent: int) -> int:
    """x^exponent mod P, reflected: bit 31 is the coefficient of x^0."""
    power = 1
    for _ in range(exponent):
        power <<= 1
        if power >> 32:
            power ^= _POLYNOMIAL
    return int(f"{power:032b}"[::-1], 2)


def _moving(bits: int) -> list[int]:
    """What moves a block's two halves on; one bit further up, as the product of reflected factors wants it."""
    return [_power(bits + 32) << 1, _power(bits - 32) << 1]


_WIDE = _blocks_at_once()
_FROM_128 = _power(95) << 32
_FROM_96 = _power(63) << 32
_QUOTIENT = 0x1F7011641  # x^64 / P, reflected
_P = int(f"{_POLYNOMIAL:033b}"[::-1], 2)


def folds_in_hardware() -> bool:
    """Whether the code is compiled for this very processor, and that one has a carry-less product (x86 PCLMULQDQ)."""
    return _WIDE > 0


class _Folder:
    """Writes the code for blocks that are `wide` at once."""

    def __init__(self, builder: Any, wide: int) -> None:
        self.builder = builder
        self.wide = wide
        self.kind = ir.VectorType(_I64, 2 * wide)
        signature = ir.FunctionType(self.kind, [self.kind, self.kind, _I8])
        self._product = cgutils.get_or_insert_function(builder.module, signature, _PRODUCTS[wide])

    def moved(self, blocks: Any, powers: list[int]) -> Any:
        """Each block moved on as its two powers say; `powers`: of one block, or of each."""
        factors = ir.Constant(self.kind, powers if len(powers) == 2 * self.wide else powers * self.wide)
        low = self.builder.call(self._product, [blocks, factors, _I8(0x00)])
        high = self.builder.call(self._product, [blocks, factors, _I8(0x11)])
        return self.builder.xor(low, high)

    def block(self, blocks: Any, number: int) -> Any:
        """One block of several."""
        pick = ir.Constant(ir.VectorType(_I32, 2), [2 * number, 2 * number + 1])
        return self.builder.shuffle_vector(blocks, ir.Constant(self.kind, ir.Undefined), pick)

    def widened(self, block: Any) -> Any:
        """One block before zeros."""
        zeros = ir.Constant(_TWO, [0, 0])
        pick = ir.Constant(ir.VectorType(_I32, 2 * self.wide), [0, 1] + [2] * (2 * self.wide - 2))
        return self.builder.shuffle_vector(block, zeros, pick)

    def joined(self, blocks: Any) -> Any:
        """All blocks as the one that they leave."""
        if self.wide == 1:
            return blocks
        powers = [power for k in range(self.wide - 1, 0, -1) for power in _moving(128 * k)]
        moved = self.moved(blocks, [*powers, 0, 0])
        crc = self.block(blocks, self.wide - 1)
        for number in range(self.wide - 1):
            crc = self.builder.xor(crc, self.block(moved, number))
        return crc


@intrinsic
def fold(typing: Any, data: Any, at: Any, length: Any) -> Any:  # noqa: PLR0915 - one loop on purpose
    """16 bytes, as two uint64 (little endian), that leave the remainder of `length` ≥ 16 bytes (first register ~0)."""
    pair = types.UniTuple(types.uint64, 2)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: PLR0915 - as above
        data, at, length = args
        one, wide = _Folder(builder, 1), _Folder(builder, _WIDE)
        step = _WIDE * _BLOCK

        def load(place: Any, kind: Any) -> Any:
            return builder.load(address(context, builder, signature.args[0], data, place, kind), align=1)

        odd = builder.and_(length, _I64(_BLOCK - 1))
        bits = builder.zext(builder.shl(odd, _I64(3)), _I128)
        register = _I128(0xFFFFFFFF)
        up = builder.and_(builder.sub(_I128(128), bits), _I128(127))
        first = builder.shl(builder.xor(load(at, _I128), register), up)
        first = builder.select(builder.icmp_unsigned("==", odd, _I64(0)), _I128(0), first)
        behind = builder.bitcast(builder.lshr(register, bits), _TWO)
        before = builder.xor(one.moved(builder.bitcast(first, _TWO), _moving(128)), behind)

        whole = cgutils.alloca_once(builder, _TWO)
        place = cgutils.alloca_once_value(builder, builder.add(at, odd))
        left = cgutils.alloca_once_value(builder, builder.sub(length, odd))  # bytes

        def take(size: Any) -> None:
            builder.store(builder.add(builder.load(place), size), place)
            builder.store(builder.sub(builder.load(left), size), left)

        with builder.if_else(builder.icmp_signed(">=", builder.load(left), _I64(step))) as (long, short):
            with long:
                lanes = [cgutils.alloca_once(builder, wide.kind) for _ in range(_LANES)]
                here = builder.load(place)
                builder.store(builder.xor(load(here, wide.kind), wide.widened(before)), lanes[0])
                take(_I64(step))
                with builder.if_then(builder.icmp_signed(">=", builder.load(left), _I64((2 * _LANES - 1) * step))):
                    here = builder.load(place)
                    for number, lane in enumerate(lanes[1:]):
                        builder.store(load(builder.add(here, _I64(number * step)), wide.kind), lane)
                    take(_I64((_LANES - 1) * step))
                    with cgutils.loop_nest(builder, [builder.sdiv(builder.load(left), _I64(_LANES * step))], _I64):
                        here = builder.load(place)
                        for number, lane in enumerate(lanes):
                            new = load(builder.add(here, _I64(number * step)), wide.kind)
                            moved = wide.moved(builder.load(lane), _moving(128 * _LANES * _WIDE))
                            builder.store(builder.xor(moved, new), lane)
                        take(_I64(_LANES * step))
                    folded = builder.load(lanes[-1])
                    for number, lane in enumerate(lanes[:-1]):
                        distance = 128 * (_LANES - 1 - number) * _WIDE
                        folded = builder.xor(folded, wide.moved(builder.load(lane), _moving(distance)))
                    builder.store(folded, lanes[0])
                with cgutils.loop_nest(builder, [builder.sdiv(builder.load(left), _I64(step))], _I64):
                    moved = wide.moved(builder.load(lanes[0]), _moving(128 * _WIDE))
                    builder.store(builder.xor(moved, load(builder.load(place), wide.kind)), lanes[0])
                    take(_I64(step))
                builder.store(wide.joined(builder.load(lanes[0])), whole)
            with short:
                builder.store(builder.xor(before, load(builder.load(place), _TWO)), whole)
                take(_I64(_BLOCK))
        with cgutils.loop_nest(builder, [builder.sdiv(builder.load(left), _I64(_BLOCK))], _I64):
            moved = one.moved(builder.load(whole), _moving(128))
            builder.store(builder.xor(moved, load(builder.load(place), _TWO)), whole)
            take(_I64(_BLOCK))
        folded = builder.load(whole)
        halves = [builder.extract_element(folded, _I32(number)) for number in range(2)]
        return context.make_tuple(builder, pair, halves)

    return pair(data, types.int64, types.int64), generate


@intrinsic
def remainder(typing: Any, low: Any, high: Any) -> Any:
    """uint32: what 16 bytes (two uint64, little endian) leave in the register."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        low, high = args
        signature_of = ir.FunctionType(_TWO, [_TWO, _TWO, _I8])
        product = cgutils.get_or_insert_function(builder.module, signature_of, _PRODUCTS[1])

        def times(word: Any, factor: int) -> Any:
            """A 64-bit word with a constant: 128 bits."""
            vector = builder.insert_element(ir.Constant(_TWO, [0, 0]), word, _I32(0))
            return builder.bitcast(builder.call(product, [vector, ir.Constant(_TWO, [factor, 0]), _I8(0)]), _I128)

        def half(value: Any, number: int) -> Any:
            return builder.trunc(builder.lshr(value, _I128(64 * number)), _I64)

        lower = builder.shl(builder.zext(high, _I128), _I128(32))
        of_96 = builder.xor(times(low, _FROM_128), lower)
        of_64 = builder.xor(half(times(half(of_96, 0), _FROM_96), 1), half(of_96, 1))
        mask = _I64(0xFFFFFFFF)
        quotient = builder.and_(half(times(builder.and_(of_64, mask), _QUOTIENT), 0), mask)
        rest = builder.xor(half(times(quotient, _P), 0), of_64)
        return builder.trunc(builder.lshr(rest, _I64(32)), _I32)

    return types.uint32(types.uint64, types.uint64), generate


@intrinsic
def carryless(typing: Any, one: Any, other: Any) -> Any:
    """uint64: the product of two polynomials of 32 bits (uint32, reflected), reflected: bit 63 is x^0's coefficient."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        signature_of = ir.FunctionType(_TWO, [_TWO, _TWO, _I8])
        product = cgutils.get_or_insert_function(builder.module, signature_of, _PRODUCTS[1])
        one, other = (
            builder.insert_element(ir.Constant(_TWO, [0, 0]), builder.zext(arg, _I64), _I32(0)) for arg in args
        )
        low = builder.extract_element(builder.call(product, [one, other, _I8(0)]), _I32(0))
        return builder.shl(low, _I64(1))

    return types.uint64(types.uint32, types.uint32), generate
