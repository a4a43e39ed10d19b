"""CLI.md says what commands print with --json: every key, and nothing that is not printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rstore_cli
from engine import errors
from engine.errors import NextStep, RStoreError
from engine.format import timer_log
from engine.format.record import BLANK_MAGIC
from rstore_cli.app import COMMANDS
from tests.docs.markdown import section, tables
from tests.rstore_cli.conftest import Cli, cli, damage
from tests.support import dledger, newer
from tests.support.checking import check_clean

__all__ = ["cli"]

pytestmark = pytest.mark.leaves("log-damage")

PAGE = Path(rstore_cli.__file__).with_name("CLI.md")
Store = Callable[[str], Path]
COMMON = {name.strip("`") for row in tables(section(PAGE, "Plans"))[0] for name in re.findall(r"\w+", row["key"])}
OPTIONAL = {"next", "unread", "notRead"}
"""Keys after a semicolon: they are there where there is something to say."""

LINES = {"offsets list", "dump config"}
"""Answers of JSON lines."""
ELSEWHERE = {
    "serve",
    "replicate",
    "rewind",
    "promote",
    "send",
    "consume",
    "tail",
    "trace",
    "admin",
    "copy",
    "top",
    "pipeline",
    "bench",
    "completion",
    "console",
}
"""They ask brokers, run for an hour, or print no JSON."""


def keys_of(title: str, command: str) -> set[str]:
    """What a row of a section's last table says of a command."""
    every = tables(section(PAGE, title), marks=True)[-1]
    (said,) = (row for row in every if f"`{command}`" in row["command"].split(", "))
    cell = re.sub(r"\([^)]*\)", "", said.get("keys") or said["adds"])
    return set(re.findall(r"`(\w+)`", cell))


def kinds(of: type[RStoreError]) -> Iterator[type[RStoreError]]:
    yield of
    for one in of.__subclasses__():
        if one.__module__ == errors.__name__:
            yield from kinds(one)


def test_every_error_has_its_code_and_exit() -> None:
    stated = {row["code"]: int(row["exit"]) for row in tables(section(PAGE, "Exit codes"))[1]}
    assert stated == {one.code: one.exit_code for one in kinds(RStoreError)}


def test_an_error(cli: Cli, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    damage(store)
    stated = [row["key"] for row in tables(section(PAGE, "Exit codes"))[0]]
    assert list(cli("--store", store, "--json", "recover", "--yes").json["error"]) == stated
    assert list(cli("--store", store, "--json", "get", "NoSuch", "0").json["error"]) == stated[:-1]


def test_a_next_step() -> None:
    assert all(f"`{key}`" in section(PAGE, "Exit codes") for key in NextStep(None, "").to_json())


def test_a_message(cli: Cli, fixture_store: Store) -> None:
    rows = tables(section(PAGE, "Messages"))[0]
    always = {row["key"] for row in rows if not row["where"]}
    may = {row["key"] for row in rows}
    for words in (("get", "Hot", "0"), ("dump", "commitlog"), ("dump", "commitlog", "--redact")):
        found = cli("--store", fixture_store("clean-small"), "--json", *words).lines
        messages = [set(line) for line in found if line.get("kind", "message") == "message"]
        assert messages
        assert all(always <= keys <= may for keys in messages)


def test_what_is_no_message_of_the_log(cli: Cli, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    damage(store)
    found = cli("--store", store, "--json", "dump", "commitlog").lines
    said = set(re.findall(r"`(\w+)`", section(PAGE, "Messages").rpartition("|\n")[2].partition(". `put")[0]))
    assert said == {"kind", "physicalOffset", "length", "reason", "file"}
    seen = {line["kind"]: set(line) for line in found if line["kind"] != "message"}
    assert seen == {"blank": said - {"reason", "file"}, "damage": said}


@pytest.mark.parametrize(
    "words",
    ["dump consumequeue Hot 0", "dump index", "dump index --header", "dump checkpoint"],
)
def test_units_entries_and_the_checkpoint(words: str, cli: Cli, fixture_store: Store) -> None:
    command = words.removesuffix(" Hot 0")
    found = cli("--store", fixture_store("clean-small"), "--json", *words.split()).lines
    assert found
    assert all(set(line) == keys_of("Units, entries", command) for line in found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("timer", "dump timerlog"), ("timer", "dump timerlog --due"), ("timer", "dump timerwheel"),
        ("controller", "dump epoch"),
    ],
)  # fmt: skip
def test_what_rocketmq_5_keeps(name: str, words: str, cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = cli("--store", newer.unpack(name, tmp_path_factory.mktemp("store")), "--json", *words.split()).lines
    stated = keys_of("Units, entries", words)
    assert lines
    assert all(set(line) == stated for line in lines)


def test_tiered_files(cli: Cli, tmp_path: Path) -> None:
    lines = cli("--json", "dump", "tiered", newer.unpack_files("tiered", tmp_path)).lines
    assert all(set(line) == keys_of("Units, entries", "dump tiered") for line in lines)
    entries = cli("--json", "dump", "tiered", tmp_path / "tiered-files", "--index").lines
    assert all(set(line) == keys_of("Units, entries", "dump tiered --index") for line in entries)
    assert lines


def test_entries_of_dledger(cli: Cli, tmp_path: Path) -> None:
    lines = cli("--store", dledger.unpack("mixed4", tmp_path), "--json", "dump", "dledger").lines
    stated = keys_of("Units, entries", "dump dledger")
    assert {line["kind"] for line in lines} == {"entry", "blank"}
    assert all(set(line) == stated for line in lines if line["kind"] == "entry")


def test_compacted_topics(cli: Cli, tmp_path: Path) -> None:
    lines = cli("--store", newer.unpack("compaction", tmp_path), "--json", "dump", "compaction").lines
    assert all(set(line) == keys_of("Units, entries", "dump tiered") for line in lines)
    assert lines


def test_the_database_of_rocketmq_5_4(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    lines = cli("--store", newer.unpack("rocksdb-store", tmp_path), "--json", "dump", "rocksdbstore").lines
    rows = [row for row in tables(section(PAGE, "Units, entries"), marks=True)[-1] if "rocksdbstore" in row["command"]]
    stated = {}
    for row in rows:
        (kind,) = re.findall(r"`(\w+)`", row["command"])
        stated[kind] = set(re.findall(r"`(\w+)`", row["keys"]))
    assert {line["kind"] for line in lines} == stated.keys()
    assert all(set(line) == stated[line["kind"]] for line in lines)


def test_what_rocketmq_5_adds_to_the_checkpoint(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = newer.unpack("timer", tmp_path_factory.mktemp("store"))
    line = cli("--store", store, "--json", "dump", "checkpoint").json
    every = tables(section(PAGE, "Units, entries"), marks=True)[-1]
    (added,) = (row["keys"] for row in every if row["command"].startswith("`dump checkpoint` of"))
    own, _, nested = added.partition("(")
    assert set(line) == keys_of("Units, entries", "dump checkpoint") | set(re.findall(r"`(\w+)`", own))
    assert set(line["timer"]) == set(re.findall(r"`(\w+)`", nested))


def test_damage_of_what_rocketmq_5_keeps(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = newer.unpack("timer", tmp_path_factory.mktemp("store"))
    (log,) = (store / "timerlog").iterdir()
    with log.open("r+b") as file:
        file.write(b"\xff" * 52)
        file.seek(5148)
        file.write(timer_log._BLANK.pack(52, 0, BLANK_MAGIC))
    text = section(PAGE, "Units, entries").rpartition("In the timer log")[2]
    log_says, due_says, wheel_says = (set(re.findall(r"`(\w+)`", part)) for part in text.split(";"))
    lines = cli("--store", store, "--json", "dump", "timerlog").lines
    assert {line["kind"] for line in lines} == {"damage", "unit", "blank"}
    assert set(lines[0]) == log_says - {"blank", "damage", "unit"}
    with (store / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(7574)
        file.write(bytes(8))
    (bad,) = (row for row in cli("--store", store, "--json", "dump", "timerlog", "--due").lines if "reason" in row)
    assert set(bad) == due_says
    with (store / "timerwheel").open("r+b") as file:
        file.write(b"\1" * 32)
    (slot, *_) = cli("--store", store, "--json", "dump", "timerwheel").lines
    assert set(slot) == wheel_says


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("recover", ["--dry-run"]),
        ("truncate", ["--to-offset", "0", "--dry-run"]),
        ("reindex", ["--dry-run"]),
        ("expire", ["--force", "--dry-run"]),
        ("plan-start", []),
    ],
)
def test_plans(command: str, options: list[str], cli: Cli, fixture_store: Store) -> None:
    found = cli("--store", fixture_store("clean-small"), "--json", command, *options).json
    stated = keys_of("Plans", command)
    assert COMMON | stated >= set(found) >= (COMMON | stated) - OPTIONAL
    rows = {row["key"]: row["is"] for row in tables(section(PAGE, "Plans"), marks=True)[0]}
    for queue in found["queues"]:
        assert set(re.findall(r"`(\w+)`", rows["`queues`"])) <= set(queue)


@pytest.mark.parametrize("command", ["verify-crc", "check"])
def test_judgements(command: str, cli: Cli, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    damage(store)
    found = cli("--store", store, "--json", command).json
    stated = keys_of("Judgements", command)
    assert stated >= set(found) >= stated - OPTIONAL
    text = section(PAGE, "Judgements").rpartition("|\n")[2]
    for one in (*found.get("damage", ()), *found.get("findings", ())):
        assert set(one) <= set(re.findall(r"`(\w+)`", text))


@pytest.mark.leaves
def test_other_answers(cli: Cli, fixture_copy: Store, tmp_path: Path) -> None:
    """Every key that a command prints, and of every command that the section names."""
    root, seen = fixture_copy("clean-small"), set()

    def run(command: str, *words: object, store: Path = root) -> list[dict[str, object]]:
        ran = cli("--store", store, "--json", *command.split(), *words)
        answers = ran.lines if command in LINES else [ran.json]
        assert answers
        stated = keys_of("Other answers", command)
        assert all(stated >= set(one) >= stated - OPTIONAL for one in answers), (command, answers[0])
        seen.add(command)
        return answers

    run("init", store=tmp_path / "new")
    cli("--store", root, "truncate", "--to-offset", "0", "--yes")
    (repair,) = cli("--store", root, "--json", "salvage", "list").json["repairs"]
    for command, *words in (
        ("salvage scan",),
        ("salvage list",),
        ("salvage show", repair["id"]),
        ("salvage export", repair["id"], "-o", tmp_path / "saved"),
        ("salvage export --raw", tmp_path / "raw", repair["id"]),
        ("salvage replay", "--dry-run"),
        ("salvage prune", "--keep", "0", "--dry-run"),
        ("undo --list",),
        ("undo", "--yes"),
        ("rebuild-config", "--all", "--dry-run"),
        ("offsets set", "group", "Hot", "0", "1", "--yes"),
        ("offsets list",),
        ("dump config",),
        ("doctor",),
        ("doctor --upgrade-to", "5.5.0"),
        ("report",),
        ("status",),
        ("flush",),
        ("put", "T", "--body", "x"),
        ("put --count", "3", "T"),
        ("drill list",),
        ("drill show", "undo"),
    ):
        run(command, *words)
    check_clean(root, known=("config-missing",), why="the fixture has no topics.json")
    rows = tables(section(PAGE, "Other answers"), marks=True)[0]
    assert seen == {name for row in rows for name in re.findall(r"`([^`]+)`", row["command"])}


def test_every_command_has_its_keys_or_has_none() -> None:
    """All in CLI.md; those of brokers and of many stores are in documents of their own."""
    named = {word.split()[0] for word in re.findall(r"`([a-z][a-z -]*)`", PAGE.read_text(encoding="utf-8")) if word}
    assert set(COMMANDS) - named == ELSEWHERE


def test_commands_that_are_named_are_there() -> None:
    named = set(re.findall(r"`rstore ([a-z-]+)", PAGE.read_text(encoding="utf-8")))
    assert named <= set(COMMANDS)
