"""The language of drills is read strictly: whatever is wrong in a script is one error, with the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.drill import library
from engine.drill.commands import COMMANDS
from engine.drill.read_script import PATIENCE_MS, parse_script, read_script
from engine.drill.script import Crash, Expect, Put, RunCommand
from engine.errors import InvalidArgument, StorageError

HEAD = 'name = "x"\npurpose = "y"\n'
PUT = '[[step]]\ndo = "put"\n'
DISK = '[[step]]\ndo = "disk"\n'
SMALL = "[store]\nfile_system = 1_000_000\n"
COMMAND = '[[step]]\ndo = "command"\nname = "recover"\n'


def parse(text: str):
    return parse_script(text.encode(), "x.toml")


def test_a_script() -> None:
    drill = parse(
        HEAD + "[store]\nqueue_file_units = 7\n" + PUT + "count = 3\n" + COMMAND + "options = { cut = true }\n"
        'crash = { how = "power-cut", torn = true }\nexpect = { acknowledged = "all" }\n'
        "[[step]]\n"
        'do = "command"\nname = "recover"\nexpect = { exit = [0, 4], store = "planned", check = "clean" }\n'
    )
    assert (drill.name, drill.source, drill.store.queue_file_units) == ("x", "x.toml", 7)
    assert drill.steps == (
        Put(count=3),
        RunCommand(
            name="recover",
            options={"cut": True},
            crash=Crash("power-cut", torn=True),
            expect=Expect(acknowledged="all"),
        ),
        RunCommand(name="recover", expect=Expect(exit=(0, 4), store=("planned",), check="clean")),
    )


def test_puts_once_there_is_room_again_are_tried_for_a_while() -> None:
    disk = '[[step]]\ndo = "disk"\n'
    full = 'crash = { how = "disk-full" }\nexpect = { refused = true }\n'
    drill = parse(
        HEAD + "[store]\nfile_system = 4_000_000\n" + PUT + disk + "leave = 0\n" + PUT + disk + "free = true\n" + PUT
        + PUT + "patience_ms = 5\n" + PUT + "expect = { refused = true }\n" + disk + "used_ratio = 0.9\n" + PUT
        + PUT + full
    )  # fmt: skip
    found = [step.patience_ms for step in drill.steps if isinstance(step, Put)]
    assert found == [0, 0, PATIENCE_MS, 5, 0, 0, PATIENCE_MS]


BAD = {
    "": "name",
    "name = 3": "name: text, not 3",
    'name = "X y"\npurpose = "y"': "small letters",
    'name = "all"\npurpose = "y"': "reserved for the command line",
    HEAD: "a drill requires steps",
    HEAD + "step = 3": "a drill requires steps",
    HEAD + "steps = 3": "unknown key 'steps' (did you mean step?)",
    HEAD + '[[step]]\ndo = "putt"': "step 1, do: 'putt' (did you mean put?)",
    HEAD + "[[step]]\ncount = 3": "step 1, do: is missing",
    HEAD + PUT + "coutn = 3": "step 1 (put): unknown key 'coutn' (did you mean count?)",
    HEAD + PUT + 'count = "3"': "step 1 (put), count: a whole number, not '3'",
    HEAD + PUT + "count = true": "step 1 (put), count: a whole number, not True",
    HEAD + PUT + "count = 0": "count: at least 1",
    HEAD + PUT + "topics = []": "topics: is empty",
    HEAD
    + PUT
    + "body = 100000": "body: 100000: 2 or more, and less than a quarter of a log file (commitlog_file_size = 16384)",
    HEAD
    + PUT
    + 'topics = "Orders,Payments"': "topics: 'Orders,Payments': The specified topic[Orders,Payments] contains",
    HEAD + PUT + 'topics = "a,b"': 'several topics: ["a", "b"]',
    HEAD + PUT + 'topics = ["T", ""]': "step 1 (put), topics: '': The specified topic is blank",
    HEAD
    + '[[step]]\ndo = "open"\nserve = true\ntopics = "a b"': "step 1 (open), topics: 'a b': The specified topic[a b]",
    HEAD + PUT + 'flush = "never"': "flush: 'never'; there are sync, async",
    HEAD + PUT + 'flush = "SYNC_FLUSH"': "flush: 'SYNC_FLUSH' (did you mean sync?); there are sync, async",
    HEAD + PUT + "expect = 3": "expect: a table",
    HEAD + PUT + "expect = { lost = 0 }": "expect: unknown key 'lost'",
    HEAD + PUT + 'expect = { check = "clear" }': "check: 'clear' (did you mean clean?)",
    HEAD + PUT + 'expect = { store = "sound" }': "no step remembers 'sound'",
    HEAD + PUT + 'expect = { may_find = "log-tail" }': "may_find requires check",
    HEAD + PUT + "expect = { exit = 1 }": "exit is expected of a command",
    HEAD + PUT + 'crash = { how = "fire" }': "how: 'fire'",
    HEAD + PUT + 'crash = { lose = "all" }': "crash: how is missing",
    HEAD + PUT + 'crash = { how = "kill", torn = true }': "the power cut's",
    HEAD + PUT + 'crash = { how = "kill", sample = 0 }': "sample: at least 1",
    HEAD + PUT + 'crash = { how = "disk-full" }': "refused is required for puts on a full disk",
    HEAD + '[[step]]\ndo = "command"\nname = "recovr"': "did you mean recover?",
    HEAD + COMMAND + "options = { bridge = 1 }": "bridge: true or false, not 1",
    HEAD + COMMAND + "options = { birdge = true }": "options of recover: unknown key 'birdge'",
    HEAD + COMMAND + 'expect = { findings = "log-tial" }': "unknown finding 'log-tial' (did you mean log-tail?)",
    HEAD + COMMAND + 'crash = { how = "kill" }\nexpect = { exit = 0 }': "an interrupted command has none",
    HEAD + '[[step]]\ndo = "command"\nname = "check"\ncrash = { how = "kill" }': "check only reads",
    HEAD + '[[step]]\ndo = "close"': "the store is not open",
    HEAD + '[[step]]\ndo = "open"': "left open",
    HEAD + '[[step]]\ndo = "open"\n' + COMMAND: "the store is open: close it first",
    HEAD + '[[step]]\ndo = "open"\nexpect = { check = "clean" }': "only puts and reads of an open store can "
    "be checked: close it first",
    HEAD + '[[step]]\ndo = "damage"\nkind = "remove"': "path: is for remove",
    HEAD + '[[step]]\ndo = "damage"\nkind = "remove"\npath = "../x"': "path: below the store",
    HEAD + '[[step]]\ndo = "damage"\nkind = "remove"\npath = "/x"': "path: below the store",
    HEAD + '[[step]]\ndo = "damage"\nat = 2': "at: from 0",
    HEAD + '[[step]]\ndo = "damage"\nwhere = "index"\nlast_files = true': "last_files: requires where",
    HEAD + DISK: "step 1 (disk): give one of used_ratio = RATIO, leave = BYTES and free = true",
    HEAD + DISK + "free = false": "step 1 (disk): give one of",
    HEAD + DISK + "leave = 3": "step 1 (disk), leave: requires a disk of its own: file_system = BYTES in [store]",
    HEAD + SMALL + DISK + "leave = -5": "step 1 (disk), leave: -5: from 0, below file_system = 1000000",
    HEAD + SMALL + DISK + "leave = 1_000_000": "leave: 1000000: from 0, below",
    HEAD + SMALL + DISK + "leave = 0\npatience_ms = 5": "unknown key 'patience_ms' (a key of put); there are",
    HEAD + "[store]\nfile_system = 0\n" + PUT: "store, file_system: at least 1, not 0",
    HEAD
    + "[store]\nfile_system = 16_384\n"
    + PUT: "store, file_system: 16384 bytes are too few: the first files of log, queue and index take 17664",
    HEAD + SMALL + "commitlog_file_size = 1_073_741_824\n" + PUT: "store, file_system: 1000000 bytes are too few",
    HEAD + "[store]\ncommitlog_file_size = -1\n" + PUT: "store, commitlog_file_size: at least 1, not -1",
    HEAD + "[store]\nqueue_file_units = 0\n" + PUT: "store, queue_file_units: at least 1, not 0",
    HEAD + "[store]\nindex_slots = 0\n" + PUT: "store, index_slots: at least 1, not 0",
    HEAD + '[store]\nfile_system = "3M"\n' + PUT: "store, file_system: a whole number, not '3M'",
    "name = ": "the drill is not TOML",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_is_named(text: str) -> None:
    with pytest.raises(InvalidArgument) as found:
        parse(text)
    assert BAD[text] in found.value.message
    assert found.value.path == "x.toml"
    assert found.value.exit_code == 2
    assert "rstore drill show" in (found.value.hint or "")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    with pytest.raises(StorageError):
        read_script(path)
    path.write_bytes(b"name = \xff")
    with pytest.raises(InvalidArgument, match="not UTF-8") as found:
        library.find(str(path))
    assert found.value.path == str(path)
    path.write_text(HEAD + PUT)
    assert library.find(str(path)).name == "x"
    with pytest.raises(InvalidArgument, match="did you mean torn-write"):
        library.find("torn-writ")


def test_the_shipped_drills_are_those_of_fixtures() -> None:
    there = Path(__file__).resolve().parents[3] / "fixtures" / "drills"
    assert set(library.names()) == {path.stem for path in there.iterdir()}
    assert len(library.names()) > 30
    for name in library.names():
        assert library.shipped(name).name == name


@pytest.mark.parametrize("command", [name for name, command in COMMANDS.items() if not command.reads])
def test_every_command_that_changes_a_store_is_killed_in_a_drill(command: str) -> None:
    killed = [
        step
        for name in library.names()
        for step in library.shipped(name).steps
        if isinstance(step, RunCommand) and step.name == command and step.crash and step.crash.how == "kill"
    ]
    assert killed


@pytest.mark.parametrize("name", library.names())
def test_every_drill_says_that_messages_and_check_are_right_in_the_end(name: str) -> None:
    drill = library.shipped(name)
    expected = [step.expect for step in drill.steps]
    assert any(one.check == "clean" for one in expected)
    assert any(one.acknowledged and one.nothing_new for one in expected) or not drill.store.made
