"""`get` and `query` where nothing is say what was searched, and exit with 1; damage is still damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.rstore_cli.conftest import Cli


def test_an_id_that_points_between_messages_is_no_damage(new_store: Path, cli: Cli) -> None:
    """A client's id and a broker's look alike: "no message starts here: magic …", exit 4, was told of a sound log."""
    first, second = (cli("--store", new_store, "put", "T", "--body", body, "--json").json for body in "ab")
    size = second["physicalOffset"] - first["physicalOffset"]
    inside, behind = (f"{first['msgId'][:16]}{offset:016X}" for offset in (5, 2 * size))
    for msg_id, where in ((inside, f"inside a record, 0 to {size}"), (behind, "outside of the log")):
        for words in (("get", "--msg-id", msg_id), ("get", "T", "--msg-id", msg_id)):
            ran = cli("--store", new_store, *words)
            assert (ran.code, where in ran.error_line) == (1, True), ran
            assert f"dump commitlog --json | grep -F -- {msg_id}" in ran.error_line
    assert cli("--store", new_store, "get", "--msg-id", inside, "--json").json["error"]["code"] == "not-found"
    at = cli("--store", new_store, "get", "--physical-offset", "5")
    assert (at.code, f"inside a record, 0 to {size}" in at.error_line) == (2, True)
    assert f"next: rstore --store {new_store} get --physical-offset 0 " in at.error_line
    elsewhere = cli("--store", new_store, "get", "--msg-id", f"0A0000010000{first['msgId'][12:]}")
    assert (elsewhere.code, "it names another broker" in elsewhere.err) == (0, True)


@pytest.mark.leaves("log-damage")
def test_an_id_that_points_into_damage_says_so(new_store: Path, cli: Cli) -> None:
    put = ("put", "T", "--queue", "0", "--json", "--body")
    ids = [cli("--store", new_store, *put, body).json["msgId"] for body in "abc"]
    (segment,) = (new_store / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(int(ids[1][16:], 16))
        file.write(b"\xff" * 16)
    for words in (("--msg-id", ids[1]), ("--physical-offset", str(int(ids[1][16:], 16)))):
        ran = cli("--store", new_store, "get", *words)
        assert (ran.code, "the log is damaged from" in ran.error_line) == (4, True), ran
        assert ran.next_command == ["--store", str(new_store), "check"]
    for sound in (ids[0], ids[2]):
        assert cli("--store", new_store, "get", "--msg-id", sound).code == 0
    queue = cli("--store", new_store, "get", "T", "0", "--json")  # the sound one behind it was passed over in silence
    assert ([m["msgId"] for m in queue.lines], queue.code) == ([ids[0], ids[2]], 1)
    assert "1 offset points at no sound message" in queue.err


def fill(store: Path, cli: Cli, segments: int) -> list[int]:
    """Put messages of 1 KiB without keys until the log has so many files; their physical offsets."""
    cli("--store", store, "put", "T", "--queue", "0", "--count", str(64 * segments - 20), "--size", "1K")
    assert len(list((store / "commitlog").iterdir())) >= segments
    return [line["physicalOffset"] for line in cli("--store", store, "get", "T", "0", "-n", "999", "--json").lines]


def test_a_place_in_the_blank_at_the_end_of_a_file_says_so(new_store: Path, cli: Cli) -> None:
    """Fewer bytes than a record takes are left there: "no message at N (the log holds 0 to M)" was told of N < M."""
    places = fill(new_store, cli, 2)
    last = max(at for at in places if at < 65536)
    end = last + (places[1] - places[0])
    assert end < 65536 - 91
    for at in (end, end + 1, 65536 - 92, 65536 - 91, 65536 - 90, 65536 - 1):
        ran = cli("--store", new_store, "get", "--physical-offset", str(at))
        said = f"offset {at} is inside the blank record that closes a file, {end} to 65536: no message starts there"
        assert (ran.code, said in ran.error_line) == (2, True), ran


def test_a_place_whose_file_is_missing_says_so(new_store: Path, cli: Cli, tmp_path: Path) -> None:
    places = fill(new_store, cli, 3)
    inside = next(at for at in places if at > 65536)
    segment = new_store / "commitlog" / f"{65536:020d}"
    segment.rename(tmp_path / "away")
    for words in (("--physical-offset", str(inside)), ("--msg-id", f"7F00000100000000{inside:016X}")):
        ran = cli("--store", new_store, "get", *words)
        said = "the segments from 65536 to 131072 are missing: no message can be read there"
        assert (ran.code, said in ran.error_line) == (4, True), ran
        assert ran.next_command == ["--store", str(new_store), "check"]
    (tmp_path / "away").rename(segment)


def test_zeros_that_sound_records_follow_are_damage_without_an_index_too(new_store: Path, cli: Cli) -> None:
    """The log's end was where its last file first holds no record: "outside of the log" was told of them."""
    places = fill(new_store, cli, 1)
    (segment,) = (new_store / "commitlog").iterdir()
    true = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(places[3])
        file.write(bytes(places[5] - places[3]))
    ran = cli("--store", new_store, "get", "--physical-offset", str(places[4]))
    assert (ran.code, f"the log is damaged from {places[3]} on" in ran.error_line) == (4, True), ran
    behind = places[-1] + 2 * (places[1] - places[0])
    ran = cli("--store", new_store, "get", "--physical-offset", str(behind))
    assert (ran.code, f"log holds offsets 0 to {places[-1] + places[1]}" in ran.error_line) == (2, True), ran
    segment.write_bytes(true)


def test_without_a_topic_that_is_known_none_is_looked_for(new_store: Path, cli: Cli) -> None:
    unique = "7F0000015BD418B4AAC2914F53A10000"
    cli("--store", new_store, "put", "T", "--property", f"UNIQ_KEY={unique}", "--body", "x")
    shutil.rmtree(new_store / "consumequeue")
    shutil.rmtree(new_store / "config", ignore_errors=True)
    ran = cli("--store", new_store, "get", "--msg-id", unique)
    assert (ran.code, "by topic, and no topic is left: name a topic before --msg-id" in ran.error_line) == (1, True), (
        ran
    )
    assert cli("--store", new_store, "get", "T", "--msg-id", unique).code == 0
    assert cli("--store", new_store, "recover", "--whole", "--yes").code == 0


def test_a_time_behind_the_newest_message(new_store: Path, cli: Cli) -> None:
    cli("--store", new_store, "put", "T", "--keys", "k", "--body", "x")
    ran = cli("--store", new_store, "get", "T", "0", "--at", "2099-01-01")
    assert (ran.code, ran.out) == (1, "")
    assert "was stored at 2099-01-01 00:00:00.000 or later: its newest was at" in ran.err
    for words, said in (
        ("--begin 2099-01-01", "after 2099-01-01 00:00:00.000"),
        ("--end 2020-01-01", "before 2020-01-01 00:00:00.000"),
        ("--begin 2019-01-01 --end 2020-01-01", "between 2019-01-01 00:00:00.000 and 2020-01-01 00:00:00.000"),
    ):
        ran = cli("--store", new_store, "query", "T", "k", *words.split())
        assert (ran.code, ran.out) == (1, "")
        assert f"the key k of T is in the index, but with no message stored {said}: the newest" in ran.err
    assert "is in the index, but" not in cli("--store", new_store, "query", "T", "no", "--end", "2020-01-01").err
