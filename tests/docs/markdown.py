"""Just enough of Markdown to hold documents against the code: sections, tables, code blocks."""

from __future__ import annotations

import re
from pathlib import Path

Table = list[dict[str, str]]


def section(path: Path, title: str) -> str:
    """The text below a heading that starts with `title`, up to the next heading."""
    parts = re.split(r"^#+ +(.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (found,) = (text for heading, text in zip(parts[1::2], parts[2::2], strict=True) if heading.startswith(title))
    return found


def tables(text: str, *, marks: bool = False) -> list[Table]:
    """All tables in a text, a dict a row, code marks around a cell taken off, unless `marks` are wanted."""
    found: list[Table] = []
    for block in re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE):
        taken = " " if marks else " `"
        rows = [[cell.strip(taken) for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        head, _, *rest = rows
        found.append([dict(zip(head, row, strict=True)) for row in rest])
    return found


def code_blocks(text: str) -> list[str]:
    """All fenced blocks in a text."""
    return re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def hexdump(block: str) -> tuple[int, bytes]:
    """Address and bytes of a hexdump, whose addresses must follow one another."""
    lines = [line.split() for line in block.splitlines()]
    start = at = int(lines[0][0], 16)
    data = b""
    for address, *values in lines:
        assert int(address, 16) == at, f"address {address} after {at:08x}"
        data += bytes.fromhex("".join(values))
        at = start + len(data)
    return start, data
