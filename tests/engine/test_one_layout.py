"""Layouts of bytes stand in engine/format and engine/wire: nobody else has a struct, or knows a position by number.

The rules find what a second declaration looks like: a struct, a slice or a load at a number, a magic, the CRC's mask.
`ALLOWED` names what is left, with the reason; it may only become shorter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.format.hashing import CRC_MASK
from engine.format.record import BLANK_MAGIC, MAGICS

ROOT = Path(__file__).resolve().parents[2]
DECLARING = ("engine/format/", "engine/wire/")
ALLOWED = {
    "engine/backup/container.py": (1, "the header of a backup's objects"),
    "engine/seals/layout.py": (2, "the header of a seal, and what its root covers"),
    "engine/files/machine_code.py": (2, "addresses in machine code"),
    "engine/log/kernels/kept.py": (2, "the header of a kernel's file, and results by letters"),
    "engine/log/kernels/linked.py": (4, "objects of the compiler (ELF)"),
    "engine/files/lock.py": (1, "struct flock, which fcntl gives"),
    "engine/broker/acl/addresses.py": (1, "groups of an IPv6 address"),
}
"""Lines of a file that break a rule, and why they may."""

STRUCTS = {"Struct", "pack", "pack_into", "unpack", "unpack_from", "iter_unpack", "calcsize"}
LOADS = {"unpack_from", "pack_into", "big32", "big64", "put32", "put64"}
"""What takes a buffer and a position."""
MAGIC_NUMBERS = {*MAGICS, BLANK_MAGIC, CRC_MASK}


def sources() -> list[Path]:
    found = sorted(path for top in ("engine", "rstore_cli") for path in (ROOT / top).rglob("*.py"))
    return [path for path in found if not str(path.relative_to(ROOT)).startswith(DECLARING)]


def has_number(node: ast.AST | None) -> bool:
    """Whether a number other than 0 and ±1 stands in an expression, by itself or in a sum."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int and node.value not in (0, 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return has_number(node.left) or has_number(node.right)
    return False


def has_cut(node: ast.AST) -> bool:
    """Whether a slice whose ends are told by numbers stands in it."""
    return any(
        isinstance(one, ast.Slice) and (has_number(one.lower) or has_number(one.upper)) for one in ast.walk(node)
    )


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def in_call(node: ast.Call) -> str | None:
    name = name_of(node)
    if name in LOADS and any(has_number(argument) for argument in node.args[1:2]):
        return f"{name} at a number"
    if name in ("from_bytes", "unpack") and any(map(has_cut, node.args)):
        return "a number out of a slice at numbers"
    if name == "slice" and any(map(has_number, node.args)):
        return "a slice at numbers"
    return None


def is_position(name: str) -> bool:
    return "POSITION" in name or name.endswith("_AT")


def in_assignment(node: ast.Assign | ast.AnnAssign) -> str | None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        if isinstance(target, ast.Name) and is_position(target.id) and has_number(node.value):
            return "a position by number"
        packed = isinstance(node.value, ast.Call) and name_of(node.value) in ("to_bytes", "pack")
        if isinstance(target, ast.Subscript) and packed and has_cut(target):
            return "bytes put at a number"
    return None


def offenders(text: str) -> Iterator[tuple[int, str]]:
    """Lines that declare a layout, and how."""
    for node in ast.walk(ast.parse(text)):
        why = None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "struct":
            why = f"struct.{node.attr}" if node.attr in STRUCTS else None
        elif isinstance(node, ast.Import) and any(one.name == "struct" and one.asname for one in node.names):
            why = "module struct under another name"
        elif isinstance(node, ast.ImportFrom) and node.module == "struct":
            why = "a name out of module struct"
        elif isinstance(node, ast.Call):
            why = in_call(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            why = in_assignment(node)
        elif isinstance(node, ast.Constant) and type(node.value) is int and node.value in MAGIC_NUMBERS:
            why = f"the number 0x{node.value:X}"
        if why is not None:
            yield node.lineno, why


def test_layouts_are_declared_in_one_place() -> None:
    wrong = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        seen = sorted(offenders(path.read_text(encoding="utf-8")))
        allowed, _ = ALLOWED.get(name, (0, ""))
        if len({line for line, _ in seen}) != allowed:
            wrong.append([f"{name}:{line} {why}" for line, why in seen] or f"{name}: none, {allowed} expected")
    assert wrong == []


def test_what_is_allowed_is_there() -> None:
    assert {str(path.relative_to(ROOT)) for path in sources()} >= ALLOWED.keys()


@pytest.mark.parametrize(
    "text",
    [
        'HEAD = struct.Struct(">iI")',
        "size, magic = struct.unpack_from('>iI', data)",
        "from struct import Struct",
        "import struct as layouts",
        "(own,) = LONG.unpack(head[28:36])",
        'total = int.from_bytes(head[:4], "big", signed=True)',
        'own = int.from_bytes(head[28:36], "big")',
        'total = int.from_bytes(before[at : at + 4], "big")',
        'crc = int.from_bytes(bytes(record[8:12]), "big")',
        "(flags,) = INT.unpack_from(head, 36)",
        "(flags,) = INT.unpack_from(head, at + 36)",
        "flags = big32(data, at + 36)",
        "length = big32(data, body_at - 4)",
        "put64(out, start + 20 + 8, offset)",
        "_BODY_CRC = slice(8, 12)",
        "_POSITION_CRC = 8",
        "MAGIC_AT: int = 4",
        'record[:4] = size.to_bytes(4, "big")',
        'record[at + 28 : at + 36] = LONG.pack(offset)',
        "is_record = magic == 0xDAA320A7",
        "found = crc32(body) & 0x7FFFFFFF",
        "def f():\n    import struct\n    return struct.pack('>q', 1)",
    ],
)  # fmt: skip
def test_a_second_declaration_is_noticed(text: str) -> None:
    assert list(offenders(text))


@pytest.mark.parametrize(
    "text",
    [
        "flags = big32(data, at + POSITION_SYS_FLAG)",
        "(flags,) = INT.unpack_from(head, at + POSITION_SYS_FLAG)",
        "size, magic = SIZE_AND_MAGIC.unpack_from(head)",
        "word = little64(data, at + 8)",
        "except_error = struct.error",
        'number = int.from_bytes(slot, "big")',
        "first = words[:2]",
        "_FRONT_AT = POSITION_QUEUE_ID",
    ],
)
def test_what_takes_its_places_from_a_declaration_passes(text: str) -> None:
    assert not list(offenders(text))
