"""The machine code of a kernel, taken out of what numba made, so that it runs without numba.

numba's compiler gives an ELF object: the kernel itself, the kernels it calls, constants, and wrappers for Python. What
is taken is the sections with code and constants, put together to one image. Each place in it that gets an address (of
the image, or of a function of the C library) is listed: LLVM's large code model, which numba compiles for, knows only
whole addresses of 64 bits. Whatever else is met raises `NotLinked`: then numba is what runs that kernel.

Only what the kernel can get to counts (`_reached`): wrappers refer to Python and numba, and are never called.

Source: System V ABI, AMD64 supplement, 4.4 (relocations); ELF-64 object file format, 1.5.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence, Set

from engine.dataclass import dataclass
from engine.log.kernels.kept import OUTER, LinkedCode

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_X86_64, _RELOCATABLE = 62, 1
_ABSOLUTE_64 = 1
_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_WRITABLE, _LOADED, _RUN = 1, 2, 4
_UNDEFINED, _COMMON = 0, 0xFFF2
_OF_SECTION, _FUNCTION = 3, 2
_ALIGNED = 64
_ADDRESS = bytes(8)


class NotLinked(Exception):
    """Why an object can't be taken."""


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    kind: int
    section: int
    value: int
    size: int


@dataclass(frozen=True, slots=True)
class _Section:
    """A section with code or constants; `relocations`: (place, type, symbol, addend)."""

    data: bytes
    runs: bool
    align: int
    relocations: list[tuple[int, int, _Symbol, int]]


@dataclass(frozen=True, slots=True)
class _Elf:
    sections: dict[int, _Section]
    symbols: list[_Symbol]


def linked(objects: Sequence[bytes], entry: str, may_call: Set[str] = OUTER) -> LinkedCode:
    """Put objects together; `entry`: the kernel's symbol, in the first of them. Raises NotLinked."""
    try:
        elves = [_parsed(data) for data in objects]
    except (struct.error, IndexError, ValueError) as error:
        raise NotLinked(f"no object: {error}") from None
    image = bytearray()
    places: dict[tuple[int, int], int] = {}
    for number, elf in enumerate(elves):
        for index, section in elf.sections.items():
            if section.align > _ALIGNED:
                raise NotLinked(f"alignment {section.align}")
            image += bytes(-len(image) % _ALIGNED)
            places[number, index] = len(image)
            image += section.data
    image += bytes(-len(image) % _ALIGNED)
    nothing = len(image)  # what variables of numba's that stay 0 are read from
    image += _ADDRESS
    named = {
        symbol.name: (number, symbol)
        for number, elf in reversed(list(enumerate(elves)))
        for symbol in elf.symbols
        if symbol.name and symbol.section not in (_UNDEFINED, _COMMON)
    }
    if entry not in named or named[entry][0] != 0:
        raise NotLinked(f"no {entry}")
    inner, outer = [], []
    for number, index, relocation in _reached(elves, named, entry):
        place, kind, symbol, addend = relocation
        if kind != _ABSOLUTE_64 or not 0 <= place <= len(elves[number].sections[index].data) - len(_ADDRESS):
            raise NotLinked(f"relocation {kind}")
        at = places[number, index] + place
        if symbol.section == _COMMON and symbol.size <= len(_ADDRESS) and addend == 0:
            inner.append((at, nothing))
            continue
        where, target = _defined(number, symbol, named)
        if target is None:
            if symbol.name not in may_call or addend != 0:
                raise NotLinked(f"needs {symbol.name}")
            outer.append((at, symbol.name))
            continue
        if (where, target.section) not in places:
            raise NotLinked(f"needs {target.name} in a section that is not taken")
        inner.append((at, places[where, target.section] + target.value + addend))
    start = places[0, named[entry][1].section] + named[entry][1].value
    return LinkedCode(bytes(image), start, tuple(inner), tuple(outer))


def _defined(number: int, symbol: _Symbol, named: dict[str, tuple[int, _Symbol]]) -> tuple[int, _Symbol | None]:
    """The object that a symbol is defined in, and its definition there; None: in none of them."""
    if symbol.section != _UNDEFINED:
        return number, symbol
    return named.get(symbol.name, (number, None))


def _reached(
    elves: list[_Elf], named: dict[str, tuple[int, _Symbol]], entry: str
) -> list[tuple[int, int, tuple[int, int, _Symbol, int]]]:
    """The relocations (object, section, relocation) of all that the kernel can get to: functions, and whole sections of
    constants. Raises NotLinked."""
    reached: list[tuple[int, int, tuple[int, int, _Symbol, int]]] = []
    done: set[tuple[int, int, int]] = set()  # object, section, where a function begins
    first_number, first = named[entry]
    waiting = [(first_number, first.section, first.value)]
    while waiting:
        number, index, offset = waiting.pop()
        section = elves[number].sections.get(index)
        if section is None:
            raise NotLinked("needs a section that is not taken")
        begin, end = 0, len(section.data)
        if section.runs:
            begin, end = _function_at(elves[number], index, offset)
        if (number, index, begin) in done:
            continue
        done.add((number, index, begin))
        for relocation in section.relocations:
            place, _, symbol, addend = relocation
            if not begin <= place < end:
                continue
            reached.append((number, index, relocation))
            if symbol.section == _COMMON:
                continue
            where, target = _defined(number, symbol, named)
            if target is not None:
                waiting.append((where, target.section, target.value + addend))
    return reached


def _function_at(elf: _Elf, section: int, offset: int) -> tuple[int, int]:
    for symbol in elf.symbols:
        begin, end = symbol.value, symbol.value + symbol.size
        if symbol.kind == _FUNCTION and symbol.section == section and begin <= offset < end:
            return begin, end
    raise NotLinked("code outside of functions")


def _parsed(data: bytes) -> _Elf:
    """Raises NotLinked, and what reading short data raises."""
    ident, kind, machine, _, _, _, at, _, _, _, _, entry_size, count, _ = _HEADER.unpack_from(data)
    if ident[:6] != b"\x7fELF\x02\x01" or (kind, machine, entry_size) != (_RELOCATABLE, _X86_64, _SECTION.size):
        raise NotLinked("another kind of object")
    headers = [_SECTION.unpack_from(data, at + number * entry_size) for number in range(count)]

    def content(number: int) -> bytes:
        offset, size = headers[number][4], headers[number][5]
        if offset + size > len(data):
            raise NotLinked("cut off")
        return data[offset : offset + size]

    def text(table: bytes, begin: int) -> str:
        return table[begin : table.index(b"\0", begin)].decode()

    symbols: list[_Symbol] = []
    for number, header in enumerate(headers):
        if header[1] == _SYMTAB:
            strings = content(header[6])
            for name, info, _, section, value, size in _SYMBOL.iter_unpack(content(number)):
                symbols.append(_Symbol(text(strings, name), info & 0xF, section, value, size))
    sections: dict[int, _Section] = {}
    for number, (_, kind, flags, _, _, _, _, _, align, _) in enumerate(headers):
        if kind == _PROGBITS and flags & (_LOADED | _WRITABLE) == _LOADED:
            sections[number] = _Section(content(number), bool(flags & _RUN), align, [])
    for number, header in enumerate(headers):
        if header[1] == _RELA and header[7] in sections:
            for place, info, addend in _RELOCATION.iter_unpack(content(number)):
                symbol = symbols[info >> 32]
                sections[header[7]].relocations.append((place, info & 0xFFFFFFFF, symbol, addend))
    return _Elf(sections, symbols)
