"""Stores in fixtures/starts, and what RocketMQ 5's own message store made of damaged copies of them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from tests.support.archives import extract

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "starts"
SETTINGS = {
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 1_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 300,
}
"""With which they were written."""


def archive(name: str) -> Path:
    """The packed store."""
    return DIRECTORY / f"{name}.tar.xz"


def unpack(name: str, into: Path) -> Path:
    """The store at `into/NAME`."""
    into.mkdir(parents=True, exist_ok=True)
    extract(archive(name), into)
    return into / name


def cases(release: str) -> list[dict[str, Any]]:
    """The damaged stores of a release, each with its outcome."""
    with lzma.open(DIRECTORY / f"{release}.jsonl.xz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]
