"""README.zh.md is README.md in Chinese: the same headings, commands, options, places and exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.markdown import section

ROOT = Path(__file__).resolve().parents[2]
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh.md"
HEADINGS = {
    "What it is": "这是什么",
    "A session": "一次完整的操作",
    "See that messages flow": "确认消息在流动",
    "See it in a browser": "在浏览器里查看",
    "What it promises": "它承诺什么",
    "How fast": "有多快",
    "Exit codes": "退出码",
    "What it takes": "需要什么",
    "Versions": "版本",
    "Where things are": "目录",
}
"""A heading of README.md that is not here yet wants its section in README.zh.md."""


def headings(path: Path) -> list[tuple[str, str]]:
    return re.findall(r"^(#+) (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def commands(path: Path) -> list[str]:
    """Lines of the indented blocks, without what they say to a reader."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [re.sub(r"\s+# .*$", "", line) for line in lines if line.startswith("    ")]


def code(text: str) -> list[str]:
    return sorted(re.findall(r"`([^`]+)`", text))


def test_the_headings_are_the_same() -> None:
    expected = [(level, HEADINGS.get(name, name)) for level, name in headings(ENGLISH)]
    assert headings(CHINESE) == expected


def test_the_command_blocks_are_the_same() -> None:
    assert commands(CHINESE) == commands(ENGLISH)
    assert len(commands(CHINESE)) > 20


def rows(path: Path, title: str) -> list[tuple[str, str]]:
    """First cell and the rest of each row below a heading, the heads left out."""
    lines = [line for line in section(path, title).splitlines() if line.startswith("| ")]
    return [tuple(line.strip("| ").split(" | ", 1)) for line in lines[1:]]  # type: ignore[misc]


@pytest.mark.parametrize("name", ["A session", "Exit codes", "Where things are"])
def test_the_tables_name_the_same(name: str) -> None:
    """Each row's first cell is the same, and so are the options, files and names in the others."""
    english, chinese = rows(ENGLISH, name), rows(CHINESE, HEADINGS[name])
    assert len(chinese) == len(english) > 5
    for (first, rest), (zh_first, zh_rest) in zip(english, chinese, strict=True):
        assert code(zh_first) == code(first)
        assert code(first) or zh_first == first
        assert code(zh_rest) == code(rest), first


@pytest.mark.parametrize("name", ["What it is", "What it promises", "What it takes", "Versions"])
def test_names_and_numbers_are_the_same(name: str) -> None:
    english, chinese = section(ENGLISH, name), section(CHINESE, HEADINGS[name])
    assert set(code(chinese)) == set(code(english))
    numbers = [re.findall(r"\d[\d,.]*\d", text) for text in (english, chinese)]
    assert set(numbers[1]) == set(numbers[0])


def test_links_lead_somewhere() -> None:
    links = {
        path: set(re.findall(r"\]\(([^)#:]+)[^)]*\)", path.read_text(encoding="utf-8"))) for path in (ENGLISH, CHINESE)
    }
    assert links[CHINESE] - {"README.md"} == links[ENGLISH] - {"README.zh.md"}
    assert "README.md" in links[CHINESE]
    assert "README.zh.md" in links[ENGLISH]
    assert all((ROOT / name).exists() for names in links.values() for name in names)
