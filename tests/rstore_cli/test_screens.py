"""What a terminal of 80 × 24 or of 50 columns shows: as golden text (screens/), and that no line of any table is wider.

RSTORE_SCREENS=write writes the golden text anew: read the difference before it is committed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rstore_cli.app import main
from rstore_cli.grid import one_line_each, table_lines
from rstore_cli.render import Output
from rstore_cli.screen import cells, fold_text, is_copied, shorten, words, wrap
from rstore_cli.status_text import show
from tests.engine.inspect import aged
from tests.engine.inspect.status.test_forecast import LAST, RoomyDisk, look
from tests.engine.opening import assert_sound
from tests.rstore_cli.conftest import Cli
from tests.support import newer
from tests.support.terminal import SGR, Terminal, terminal

Store = Callable[[str], Path]
SCREENS = Path(__file__).parent / "screens"
LONG = "orders-settlement-eu-central-1-payments-reconciliation-nightly-batch"
BIG = 9_000_000_000_000
RATE = re.compile(r"about [0-9.]+ s at|\b[0-9]+ % used")
WRITTEN = re.compile(r"written\s+\d{4}-\d\d-\d\d\s+[:.0-9]+")
WIDTHS = (80, 50)
REPAIR = re.compile(r"\b\d{8}T\d{6}Z(?=-)")
FILE_NAMES = re.compile(r"[\w./-]*(?<!\d)(?:\d{20}|\d{17})(?!\d)[\w./-]*|\d{8}T\d{6}Z-[\w-]+|\b\d{4}-\w+\.?\w+\b")
TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?=Z)")


def golden(name: str, columns: int, seen: Terminal, root: Path) -> None:
    """What was seen is the file's text; times and the store's name, which are others each time, left aside."""
    text = TIME.sub("2026-01-02T03:04:05", REPAIR.sub("20260102T030405Z", seen.plain))
    text = WRITTEN.sub("written 2026-01-02 03:04:05.678", text.replace(str(root), "data/store"))
    text = text if name == "status" else RATE.sub("…", text)
    path = SCREENS / f"{name}-{columns}.txt"
    if os.environ.get("RSTORE_SCREENS") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def assert_fits(text: str, columns: int) -> None:
    """No line is wider, but a command or an absolute path alone: those are copied as a whole."""
    for line in SGR.sub("", text).splitlines():
        found = words(line.split("  ")[-1].strip(" -!"))
        assert cells(line) <= columns or (len(found) == 1 and is_copied(found[0])), line


@pytest.fixture
def named(new_store: Path, cli: Cli) -> Path:
    """A store with long names and, in what its groups have read, large numbers."""
    for topic in (LONG, "T"):
        assert cli("--store", new_store, "put", topic, "--count", "30", "--size", "100").code == 0
    config = new_store / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(
        f'{{"offsetTable":{{"{LONG}@{LONG}-consumers-of-the-settlement":{{0:{BIG}}},"T@group":{{0:3}}}}}}'
    )
    return new_store


@pytest.mark.leaves
@pytest.mark.parametrize("columns", WIDTHS)
def test_status(columns: int, fixture_copy: Store) -> None:
    store = fixture_copy("crashed-small")
    aged.age(store, "crashed-small")
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"Hot@settlement-consumers-of-the-nightly-batch":{0:1},"Hot@slow":{0:3}}}'
    )
    found = look(store, RoomyDisk(700 << 30, 1 << 40, LAST + 5000), hours=4)
    with terminal(columns) as seen:
        show(Output(json=False, quiet=False), found, 4)
    assert_fits(seen.text, columns)
    golden("status", columns, seen, store)


@pytest.mark.parametrize("columns", WIDTHS)
def test_plans_and_what_they_saved(
    columns: int, fixture_copy: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fixture_copy("crashed-small")
    monkeypatch.chdir(store.parent)  # lines are as long on each machine
    at = "2023-11-14T22:15:00Z"
    with terminal(columns) as seen:
        assert main(["--store", store.name, "truncate", "--to-time", at, "--whole", "--dry-run"]) == 1
    golden("truncate", columns, seen, Path(store.name))
    assert cli("--store", store, "recover", "--yes").code == 0
    with terminal(columns) as seen:
        assert main(["--store", store.name, "undo", "--list"]) == 0
        assert main(["--store", store.name, "salvage", "list"]) == 0
        (repair,) = os.listdir(store / "salvage")
        assert main(["--store", store.name, "salvage", "show", repair]) == 0
    golden("salvage", columns, seen, Path(store.name))
    assert_sound(look(store, RoomyDisk(1, 2, LAST)).files.config)


@pytest.mark.leaves("config-missing", "unit-delivery-other")
@pytest.mark.parametrize("columns", WIDTHS)
def test_before_a_broker_starts_and_before_files_are_deleted(
    columns: int, fixture_copy: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fixture_copy("crashed-small")
    monkeypatch.chdir(store.parent)  # lines are as long on each machine
    aged.age(store, "crashed-small")
    with terminal(columns) as seen:
        assert main(["--store", store.name, "plan-start"]) == 4
    golden("plan-start", columns, seen, Path(store.name))
    assert cli("--store", store, "recover", "--yes").code == 0
    for segment in (store / "commitlog").iterdir():
        os.utime(segment, (0, 0))
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Hot@settlement-of-the-night":{0:1}}}')
    with terminal(columns) as seen:
        assert main(["--store", store.name, "expire", "--dry-run", "--force"]) == 1
    golden("expire", columns, seen, Path(store.name))
    assert_sound(look(store, RoomyDisk(1, 2, LAST)).files.config)


@pytest.mark.leaves("consumer-above")
@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "words",
    [
        "status", "check", "doctor", "plan-start", "offsets list", "recover --dry-run --whole", "reindex --dry-run",
        "truncate --to-offset 0 --dry-run", "rebuild-config --dry-run", "verify-crc", "expire --dry-run --force",
        "drill list", "salvage list", "salvage scan", "undo --list", "dump index --limit 3", "config history",
        "dump consumequeue T 0 --limit 3", "dump checkpoint",
    ],
)  # fmt: skip
def test_every_screen_fits(words: str, columns: int, named: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with terminal(columns) as seen:
        assert main(["--store", str(named), *words.split()]) in (0, 1, 4), capsys.readouterr().err
    assert seen.plain
    assert_fits(seen.text, columns)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("words", ["timerlog", "timerlog --due", "timerwheel", "checkpoint", "epoch"])
def test_what_rocketmq_5_keeps_fits(words: str, columns: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = newer.unpack("controller" if words == "epoch" else "timer", tmp_path_factory.mktemp("store"))
    with terminal(columns) as seen:
        assert main(["--store", str(store), "dump", *words.split()]) == 0
    assert seen.plain
    assert_fits(seen.text, columns)
    if words.startswith("timerlog"):
        with (store / "timerlog" / f"{0:020}").open("r+b") as file:
            file.seek(312 + 28)
            file.write(b"\xff" if words == "timerlog" else b"\0\xff")
        with terminal(columns) as seen:
            assert main(["--store", str(store), "dump", *words.split()]) == 1
        assert "! damage" in seen.plain
        assert_fits(seen.text, columns)


@pytest.mark.leaves("consumer-above")
@pytest.mark.parametrize("columns", WIDTHS)
def test_what_names_a_file_is_never_cut(columns: int, named: Path, cli: Cli) -> None:
    """Whatever a pipe gets of names of log, queue and index files, of repairs and what they saved, a screen shows."""
    config = ["-c", str(named.parent / "broker.conf")]
    Path(config[1]).write_text(
        f"storePathRootDir={named}\nmappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\n"
        "maxHashSlotNum=100\nmaxIndexNum=400\n"
    )
    with (named / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff" * 10)
    (named / "consumequeue" / LONG / "0" / f"{2000:020d}.bak-of-monday").mkdir()
    screens = [["verify-crc"], ["check"], ["status"], ["recover", "--cut", "--whole", "--dry-run"]]
    repairs = [["salvage", "list"], ["undo", "--list"], ["salvage", "show"], ["salvage", "scan"], ["plan-start"]]

    def compare(command: list[str]) -> None:
        plain = cli(*config, *command).out
        with terminal(columns) as seen:
            assert main([*config, *command]) in (0, 1, 4)
        assert_fits(seen.text, columns)
        wanted = set(FILE_NAMES.findall(plain))
        assert {one for one in wanted if one not in seen.plain} == set(), command
        if command[:2] == ["salvage", "show"]:
            assert len(wanted) > 3

    for command in screens:
        compare(command)
    assert cli(*config, "recover", "--cut", "--whole", "--yes").code == 0
    (repair,) = os.listdir(named / "salvage")
    for command in repairs:
        compare([*command, repair] if command[-1] == "show" else command)


@pytest.mark.leaves("consumer-above")
def test_what_is_copied_as_a_whole_is_not_broken(named: Path, cli: Cli) -> None:
    for command in (["drill", "show", "bit-rot-cut"], ["get", LONG, "0", "0"], ["dump", "config"]):
        with terminal(50) as seen:
            assert main(["--store", str(named), *command]) in (0, 1)
        assert seen.plain == cli("--store", named, *command).out


def test_a_text_of_several_lines() -> None:
    assert fold_text("one\n  - two three four\n\nfive", 10) == ["one", "  - two", "    three", "    four", "", "five"]
    assert fold_text("  20  key = 'a value'", 16) == ["  20  key = 'a", "      value'"]
    assert fold_text("  rstore --store /a/very/long/path check", 10) == ["  rstore --store /a/very/long/path check"]
    assert fold_text("Next: rstore --store '/a b(c)' check (reads the log)", 20) == [
        "Next:",
        "rstore --store '/a b(c)' check",
        "(reads the log)",
    ]


def test_a_line_ends_neither_within_a_number_nor_within_a_name() -> None:
    assert wrap("since 2026-01-02 03:04:05.678, 12 min 3 s", 26) == ["since", "2026-01-02 03:04:05.678,", "12 min 3 s"]
    assert wrap("free: 46.8 GiB", 12) == ["free:", "46.8 GiB"]
    assert wrap(f"topic {LONG} is there", 20) == ["topic", "orders-set…tly-batch", "is there"]
    assert wrap(f"saved to /data/{LONG} first", 20) == ["saved to", f"/data/{LONG}", "first"]


@pytest.mark.parametrize(
    ("name", "room", "shown"),
    [("orders", 6, "orders"), ("settlement", 6, "set…nt"), ("订单结算消费组", 8, "订单…组"), ("ab", 1, "…")],
)
def test_a_long_name_keeps_both_its_ends(name: str, room: int, shown: str) -> None:
    assert shorten(name, room) == shown
    assert cells(shown) <= room


@pytest.mark.leaves("consumer-above")
def test_an_error_fits_too_and_is_not_broken_for_programs(named: Path, cli: Cli) -> None:
    command = ["--store", str(named), "truncate", "--to-offset", "0", "--dry-run"]
    with terminal(50) as seen, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", sys.stdout)
        assert main(command) == 4
    assert_fits(seen.text, 50)
    assert "rstore: refused: consumers have not read" in seen.plain
    assert [line.partition(":")[0] for line in cli(*command).err.splitlines()] == ["rstore", "Note"]


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_that_fits_is_one_line_a_row() -> None:
    heads, rows = ["topic", "messages"], [["T", "12"], ["Other", "3"]]
    lines = ["topic  messages", "T            12", "Other         3"]
    assert table_lines(heads, rows, [1], 80) == (1, lines)
    assert table_lines(heads, rows, [1], None) == (1, lines)


def test_numbers_are_never_broken_and_names_are_shortened() -> None:
    heads, rows = ["topic", "not in its queue", "messages"], [["SCHEDULE_TOPIC_XXXX", "12345678901", "5"]]
    assert table_lines(heads, rows, [1, 2], 40)[1] == [
        "                    not in its",
        "topic                    queue  messages",
        "SCHEDULE…PIC_XXXX  12345678901         5",
    ]


def test_a_table_that_fits_in_no_way_is_told_row_by_row() -> None:
    heads = ["path", "offset", "why"]
    rows = [["commitlog/00000000000000000000", "123456789012", "behind the log's end"], ["x", "1", ""]]
    assert table_lines(heads, rows, [1], 30, whole=[0]) == (
        0,
        [
            "path    commitlog/00000000000000000000",
            "offset  123456789012",
            "why     behind the log's end",
            "",
            "path    x",
            "offset  1",
        ],
    )


def test_a_file_of_the_store_is_named_as_a_whole() -> None:
    heads, rows = ["path", "why"], [["commitlog/00000000000000655360", "behind the log's end, as it was left"]]
    assert table_lines(heads, rows, [], 44)[1] == [
        "path                            why",
        "commitlog/00000000000000655360  behind the",
        "                                log's end,",
        "                                as it was",
        "                                left",
    ]
    assert table_lines(heads, rows, [], 36)[1] == [
        "path  commitlog/00000000000000655360",
        "why   behind the log's end, as it",
        "      was left",
    ]
    assert wrap("in consumequeue/T/0/00000000000000655360 there", 20) == [
        "in",
        "consumequeue/T/0/00000000000000655360",
        "there",
    ]


def test_a_chinese_character_takes_two_columns() -> None:
    assert wrap("订单 结算", 5) == ["订单", "结算"]
    assert table_lines(["键", "n"], [["订单", "1"]], [1], 80)[1] == ["键    n", "订单  1"]


def test_where_lines_are_counted_a_row_is_one() -> None:
    heads, rows = ["group", "topic", "lag", "members"], [["settlement-consumers", "orders-of-the-shop", "12,345", "3"]]
    assert [one_line_each(heads, rows, (2, 3), room, spare=(3,))[1] for room in (80, 46, 12)] == [
        "settlement-consumers  orders-of-the-shop  12,345        3",
        "settlemen…onsumers  orders-of-the-shop  12,345",
        "sett…ers  orde…hop  12,345",
    ]


# --- colour ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "no_colour", "coloured"),
    [("xterm", "", True), ("xterm", "1", False), ("dumb", "", False), ("", "", False)],
)
def test_colour(
    term: str, no_colour: str, coloured: bool, fixture_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    store = fixture_store("clean-small")
    with terminal(80, term=term) as seen:
        assert main(["--store", str(store), "status"]) == 0
        assert main(["--store", str(store), "status", "--json"]) == 0
    text, json = seen.text[: (at := seen.text.index("\n{"))], seen.text[at:]
    assert ("\x1b[" in text) is coloured
    assert ("\x1b[1mtopic" in text) is coloured
    assert "\x1b" not in json


@pytest.mark.leaves("consumer-above")
def test_a_pipe_gets_neither_colour_nor_broken_lines(fixture_store: Store, cli: Cli, named: Path) -> None:
    for store in (fixture_store("crashed-small"), named):
        text = cli("--store", store, "status").out
        assert "\x1b" not in text
        assert any(len(line) > 100 for line in text.splitlines())
