"""`rstore dump tiered --index`: each entry of the index that a real broker uploaded, with its message; and damage."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pytest

from engine.format.hashing import index_key_hash
from tests.rstore_cli.conftest import Cli
from tests.support import newer, stores

ENTRIES, SLOTS = 40, 20
FIRST = 28 + 8 * SLOTS
"""Position of the first entry."""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return newer.unpack_files("tiered", tmp_path)


@pytest.fixture
def index(files: Path) -> Path:
    (path,) = files.glob("*/*/rmq_sys_INDEX/0/INDEX/*")
    return path


def test_each_entry_leads_to_its_message(files: Path, cli: Cli) -> None:
    before = stores.contents(files)
    ran = cli("--json", "dump", "tiered", files, "--index")
    assert (ran.code, ran.err, len(ran.lines)) == (0, "", ENTRIES)
    assert stores.contents(files) == before
    wanted: Counter[tuple[int, int, int, int]] = Counter()
    for row in cli("--json", "dump", "tiered", files).lines:
        message = row["message"]
        for key in (message["properties"].get("UNIQ_KEY"), *message["properties"].get("KEYS", "").split()):
            if key:
                wanted[index_key_hash(f"T#{key}"), row["queueId"], row["offset"], row["length"]] += 1
    assert Counter((one["keyHash"], one["queueId"], one["offset"], one["size"]) for one in ran.lines) == wanted
    assert {(one["kind"], one["topic"], one["reason"]) for one in ran.lines} == {("entry", "T", None)}
    assert [one["position"] for one in ran.lines] == [FIRST + 28 * i for i in range(ENTRIES)]
    assert all(one["keyHash"] % SLOTS == one["slot"] for one in ran.lines)
    text = cli("dump", "tiered", files, "--index", "--limit", "1").out
    assert "hash   78700620 in slot 0: T 0, 267 bytes at 533, stored " in text


@pytest.mark.parametrize(
    ("at", "data", "code", "why"),
    [
        (0, b"\0", 1, "the magic code 0x00c50285 is not that of an index file"),
        (28, struct.pack(">i", 29), 1, "the first slot points to 29, which is not after slots"),
        (28, struct.pack(">i", 1 << 30), 1, "which is not after slots"),
        (36, struct.pack(">i", 7), 1, "slot 1 names"),
        (32, struct.pack(">i", 27), 1, "slot 0 names 27 bytes at 188"),
        (24, struct.pack(">i", 41), 1, "the header says 41 entries and 16 slots with some: there are 40 and 16"),
        (FIRST, struct.pack(">i", 78700621), 1, "its hash belongs into slot 1"),
        (FIRST + 12, struct.pack(">q", 534), 1, "no message of 267 bytes with such a key lies at 534"),
        (FIRST + 12, struct.pack(">q", -1), 1, "lies at -1"),
        (FIRST + 20, struct.pack(">i", -5), 1, "no message of -5 bytes"),
        (FIRST + 8, struct.pack(">i", 9), 1, "in the log of a queue 9"),
    ],
)
def test_damage_is_named_with_its_place(
    at: int, data: bytes, code: int, why: str, files: Path, index: Path, cli: Cli
) -> None:
    with index.open("r+b") as file:
        file.seek(at)
        file.write(data)
    ran = cli("--json", "dump", "tiered", files, "--index")
    assert (ran.code, ran.err) == (code, "")
    (reason, *_) = (one["reason"] for one in ran.lines if one["reason"])
    assert why in reason
    assert why in cli("dump", "tiered", files, "--index").out


def test_files_that_are_cut_or_are_none(files: Path, index: Path, cli: Cli) -> None:
    whole = index.read_bytes()
    for data, why in ((whole[:-1], "names"), (whole + b"\0", "1 byte after the last entry"), (whole[:20], "at least")):
        index.write_bytes(data)
        ran = cli("--json", "dump", "tiered", files, "--index")
        assert ran.code == 1
        assert any(why in (one["reason"] or "") for one in ran.lines), why
    index.write_bytes(whole)
    (index.parent / "other").write_bytes(b"x")
    ran = cli("--json", "dump", "tiered", files, "--index")
    assert [one["reason"] for one in ran.lines if one["reason"]] == ["a name that no tiered file has"]


def test_what_is_asked_wrongly_is_said(files: Path, tmp_path: Path, cli: Cli) -> None:
    assert cli("dump", "tiered", files, "--index", "--topic", "T").code == 2
    (tmp_path / "empty").mkdir()
    ran = cli("dump", "tiered", tmp_path / "empty", "--index")
    assert (ran.code, "no tiered index here" in ran.err) == (4, True)
