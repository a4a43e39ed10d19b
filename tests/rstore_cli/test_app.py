"""What holds for every command: options anywhere, one line for an error, exit codes, a quick start, Ctrl-C, pipes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import errors
from engine.errors import DiskFull, RStoreError
from rstore_cli import _common
from rstore_cli.app import COMMANDS
from tests.rstore_cli.conftest import Cli, damage, process
from tests.support import stores

Store = Callable[[str], Path]


def test_the_help_names_every_command(cli: Cli) -> None:
    ran = cli("--help")
    assert ran.code == 0
    assert cli("-h") == ran
    assert all(f"  {name} " in ran.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, cli: Cli) -> None:
    ran = cli(name, "--help")
    assert ran.code == 0
    assert cli(name, "-h") == ran
    for option in ("--store", "--config", "--json", "--quiet"):
        assert option in ran.out


DUMPS = (
    "commitlog",
    "consumequeue",
    "index",
    "checkpoint",
    "timerlog",
    "timerwheel",
    "epoch",
    "dledger",
    "tiered",
    "compaction",
    "rocksdbstore",
    "config",
)


@pytest.mark.parametrize("name", DUMPS)
def test_every_dump_explains_itself(name: str, cli: Cli) -> None:
    ran = cli("dump", name, "--help")
    assert ran.code == 0
    assert cli("dump", name, "-h") == ran
    assert "--json" in ran.out


def test_no_command_shows_the_help_and_is_a_usage_error(cli: Cli) -> None:
    ran = cli()
    assert ran.code == 2
    assert "Commands:" in ran.out


def test_the_version(cli: Cli) -> None:
    assert cli("--version").code == 0
    assert cli("--version").out.startswith("rstore ")


def test_the_help_is_quick_and_loads_nothing_heavy() -> None:
    heavy = ("numpy", "rich", "engine.log", "engine.repair", "engine.store", "engine.files", "rstore_cli.commands.")
    code = f"""if True:
        import sys
        from rstore_cli.app import main
        main(["--help"])
        found = [m for m in sys.modules if m.startswith({heavy!r})]
        sys.exit(repr(found) if found else 0)
    """
    began = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert time.monotonic() - began < 10  # 0.1 s on an idle machine


def test_a_command_module_loads_nothing_heavy() -> None:
    """All in one process: what the first loads that is heavy is told, with its name."""
    names = ["rstore_cli.commands." + name.replace("-", "_") for name in COMMANDS if name != "init"]
    code = f"""if True:
        import importlib, sys
        for name in {names!r}:
            importlib.import_module(name)
            heavy = [one for one in ("numpy", "rich") if one in sys.modules]
            if heavy:
                sys.exit(f"{{name}} loads {{heavy}}")
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


# --- settings --------------------------------------------------------------------------------------------------------


def test_options_may_stand_before_or_behind_the_command(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    before = cli("--store", store, "--json", "dump", "checkpoint")
    assert before.code == 0
    for args in (
        ("dump", "checkpoint", "--store", store, "--json"),
        ("dump", "--json", "--store", store, "checkpoint"),
        ("--json", "dump", f"--store={store}", "checkpoint", "--quiet"),
    ):
        assert cli(*args).out == before.out


def test_the_store_comes_from_the_environment_and_what_is_typed_is_stronger(
    fixture_store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RSTORE_STORE", str(fixture_store("clean-small")))
    assert cli("status", "--json").json["state"] == "clean"
    assert cli("--store", tmp_path / "none", "status", "--json").code == 4
    assert cli("status", "--json", "--store", fixture_store("crashed-small")).json["state"] == "crashed"


def test_without_a_word_it_is_home_store(cli: Cli, tmp_path: Path) -> None:
    ran = cli("status")
    assert ran.code == 4
    assert str(tmp_path / "home" / "store") in ran.error_line


def test_a_broker_conf_names_the_store_and_its_unknown_keys_are_named_once(
    fixture_store: Store, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={fixture_store('clean-small')}\nnamesrv=x:1\nbrokerIP1=10.0.0.1\n")
    ran = cli("-c", conf, "status", "--json")
    assert ran.json["state"] == "clean"
    assert ran.err.count("namesrv,") + ran.err.count("namesrv:") == 1
    assert "brokerIP1" not in ran.err
    assert cli("-c", conf, "--quiet", "status", "--json").err == ""
    monkeypatch.setenv("RSTORE_CONF", str(conf))
    assert cli("status", "--json", "--store", fixture_store("crashed-small")).json["state"] == "crashed"


@pytest.mark.leaves("not-closed")
def test_a_copied_store_is_not_mixed_with_the_log_of_the_original(
    fixture_copy: Store, cli: Cli, tmp_path: Path
) -> None:
    original, copy = fixture_copy("clean-small"), fixture_copy("crashed-small")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={original}\nstorePathCommitLog={original}/commitlog\n")
    wanted = cli("--store", copy, "status", "--json").json["commitlog"]
    assert cli("--store", copy, "-c", conf, "status", "--json").json["commitlog"] == wanted


@pytest.mark.parametrize(
    ("text", "value"), [("65536", 65536), ("64M", 64 << 20), ("1GiB", 1 << 30), ("1.5k", 1536), ("2 MB", 2 << 20)]
)
def test_sizes(text: str, value: int) -> None:
    assert _common.parse_size(text, "--size") == value


@pytest.mark.parametrize("text", ["", "M", "1x", "-1", "1e3", "0.3"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(errors.InvalidArgument):
        _common.parse_size(text, "--size")


def test_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert _common.parse_time("1700000000000", "--at") == 1_700_000_000_000
        assert _common.parse_time("2023-11-14T22:13:20Z", "--at") == 1_700_000_000_000
        assert _common.parse_time("2023-11-14 23:13:20.5", "--at") == 1_700_000_000_500
        assert _common.parse_time("2h ago", "--at", now_ms=10_000_000) == 2_800_000
        assert _common.parse_time("1.5 min ago", "--at", now_ms=100_000) == 10_000
        assert _common.parse_time("now", "--at", now_ms=7) == 7
    finally:
        monkeypatch.undo()
        time.tzset()


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("statsu",), "did you mean status?"),
        (("status", "--nope"), "No such option: --nope"),
        (("dump",), "Missing command"),
        (("dump", "commitlgo"), "commitlgo"),
        (("dump", "consumequeue", "T"), "QUEUE"),
        (("dump", "consumequeue", "T", "x"), "QUEUE"),
        (("dump", "commitlog", "--from", "abc"), "--from: not a size"),
        (("get",), "QUEUE is required"),
        (("get", "T", "0", "--at", "soon"), "--at: not a time"),
        (("get", "T", "0", "--msg-id", "00"), "exclude each other"),
        (("recover", "--normal", "--abnormal"), "exclude each other"),
        (("recover", "--no-salvage"), "--yes"),
        (("recover", "--bridge", "--cut"), "exclude each other"),
        (("put",), "TOPIC is required"),
        (("put", "T", "--body", "x", "--count", "1", "--size", "1"), "exclude each other"),
        (("put", "T", "--property", "x"), "NAME=VALUE"),
        (("verify-crc", "--jobs", "0"), "--jobs"),
        (("init", "--index-entries", "1"), "maxIndexNum"),
    ],
)
def test_a_usage_error_is_one_line_and_2(args: tuple[str, ...], says: str, cli: Cli) -> None:
    ran = cli(*args)
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.error_line
    with_json = cli(*args, "--json")
    assert with_json.code == 2
    assert with_json.json["error"].keys() == {"code", "message", "path", "offset", "hint"}
    assert with_json.json["error"]["code"] == "usage"


def test_no_store_and_not_a_store(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    (tmp_path / "file").write_text("x")
    for place in ("nothing", "other", "file"):
        for args in (
            ("status",),
            ("verify-crc",),
            ("dump", "commitlog"),
            ("dump", "commitlog", "--json", "--jobs", "2"),
            ("get", "T", "0"),
            ("query", "T", "k"),
            ("recover", "--dry-run"),
            ("recover", "--yes"),
            ("put", "T"),
        ):
            ran = cli("--store", tmp_path / place, *args)
            assert ran.code == 4, (place, args)
            assert re.search("rstore --store .+ init", ran.error_line)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other"]
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["file"]


def test_with_json_an_error_is_an_object_too(cli: Cli, tmp_path: Path) -> None:
    ran = cli("--json", "--store", tmp_path / "nothing", "status")
    assert ran.json == {
        "error": {
            "code": "not-a-store",
            "message": "no store here",
            "path": str(tmp_path / "nothing"),
            "offset": None,
            "hint": f"name one with --store, or make one with: rstore --store {tmp_path / 'nothing'} init",
        }
    }
    assert ran.error_line


def every_error(kind: type[RStoreError]) -> list[type[RStoreError]]:
    return [kind, *(found for sub in kind.__subclasses__() for found in every_error(sub))]


@pytest.mark.parametrize("kind", every_error(RStoreError), ids=lambda kind: kind.__name__)
def test_every_error_of_the_engine_has_its_exit_code(
    kind: type[RStoreError], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise kind("what", path="/where", offset=7, hint="next")

    monkeypatch.setattr("engine.inspect.check.verify.verify", fail)
    ran = cli("verify-crc", "--json")
    assert ran.code == kind.exit_code
    assert ran.code in (1, 2, 3, 4, 5)
    assert ran.error_line == "rstore: what: /where at 7 (next)"
    expected = {"code": kind.code, "message": "what", "path": "/where", "offset": 7, "hint": "next"}
    assert ran.json == {"error": expected}


@pytest.mark.parametrize(
    ("error", "says"),
    [(ValueError("a\nb"), "ValueError: a b"), (OSError(28, "No space left", "/x"), "no space left: /x")],
)
def test_what_nobody_expected_is_one_line_and_5(
    error: Exception, says: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("engine.inspect.check.verify.verify", fail)
    ran = cli("verify-crc")
    assert ran.code == 5
    assert says in ran.error_line
    monkeypatch.setenv("RSTORE_DEBUG", "1")
    with pytest.raises(type(error)):
        cli("verify-crc")


def test_debug_shows_where(tmp_path: Path) -> None:
    ran = process("--store", tmp_path, "status", env={"RSTORE_DEBUG": "1"})
    _, err = ran.communicate()
    assert "Traceback" in err


@pytest.mark.leaves("not-closed")
def test_a_full_disk_is_5(fixture_copy: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise DiskFull("writing: no space left on device", path="/x", hint="free space, then run it again")

    store = fixture_copy("crashed-small")
    monkeypatch.setattr("engine.repair.recover.apply.save", full)
    ran = cli("--store", store, "recover", "--yes")
    assert ran.code == 5
    assert "free space" in ran.error_line


# --- Ctrl-C, pipes ---------------------------------------------------------------------------------------------------


def interrupted(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, stop)


@pytest.mark.leaves("not-closed")
def test_ctrl_c_while_looking(fixture_copy: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixture_copy("crashed-small")
    interrupted(monkeypatch, "engine.repair.recover.change.plan_recover")
    before = stores.contents(store)
    ran = cli("--store", store, "recover", "--yes")
    assert (ran.code, ran.err) == (130, "rstore: interrupted: nothing was changed\n")
    after = stores.contents(store)
    assert after.keys() - before.keys() <= {"lock"}


def test_ctrl_c_while_changing_says_what_to_run(fixture_copy: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixture_copy("crashed-small")
    interrupted(monkeypatch, "engine.repair.recover.change.apply")
    ran = cli("--store", store, "recover", "--yes")
    assert ran.code == 130
    assert re.search("run rstore --store .+ recover again", ran.error_line)
    monkeypatch.undo()
    assert cli("--store", store, "recover", "--yes").code == 0


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def end(running: subprocess.Popen[str]) -> tuple[str, str]:
    """Ctrl-C, and no process left behind when that doesn't help."""
    running.send_signal(signal.SIGINT)
    try:
        return running.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        running.kill()
        raise


def test_ctrl_c_from_the_keyboard(new_store: Path, cli: Cli) -> None:
    """A real signal while messages are put: one line, 130, and a store that was closed cleanly."""
    running = process("--store", new_store, "put", "T", "--count", "10000000", "--size", "100")
    wait_for(lambda: any((new_store / "commitlog").iterdir()))
    time.sleep(0.5)
    out, err = end(running)
    assert (running.returncode, out) == (130, "")
    assert err.startswith("rstore: interrupted: ")
    assert len(err.splitlines()) == 1
    found = cli("--store", new_store, "status", "--json").json
    assert found["state"] == "clean"
    assert found["topics"][0]["messages"] > 0
    assert cli("--store", new_store, "recover", "--dry-run").code == 0


def test_a_reader_that_goes_away_is_no_error(fixture_store: Store) -> None:
    running = process("--store", fixture_store("clean-small"), "dump", "commitlog", "--json")
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.wait(60) == 141
    assert running.stderr.read() == ""


# --- nothing is written by what only looks ---------------------------------------------------------------------------

READING = [
    ("status",),
    ("verify-crc",),
    ("verify-crc", "--jobs", "2"),
    ("dump", "commitlog"),
    ("dump", "consumequeue", "T", "0"),
    ("dump", "index"),
    ("dump", "index", "--header"),
    ("dump", "checkpoint"),
    ("dump", "timerlog"),
    ("dump", "timerlog", "--due"),
    ("dump", "timerwheel"),
    ("dump", "epoch"),
    ("dump", "dledger"),
    ("dump", "config"),
    ("get", "T", "0", "--count", "100"),
    ("get", "T", "0", "--at", "1h ago"),
    ("get", "--physical-offset", "0"),
    ("query", "T", "k1"),
    ("recover", "--dry-run"),
    ("recover", "--dry-run", "--cut", "--jobs", "2"),
    ("recover", "--dry-run", "--normal"),
    ("recover", "--dry-run", "--abnormal", "--json"),
]


@pytest.mark.leaves("log-damage", "not-closed")
@pytest.mark.parametrize("args", READING, ids=" ".join)
@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "damaged"])
def test_reading_writes_nothing(name: str, args: tuple[str, ...], fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small" if name == "damaged" else name)
    if name == "damaged":
        damage(store)
    before = stores.snapshot(store)
    ran = cli("--store", store, *args)
    assert ran.code in (0, 1, 4)
    assert "Traceback" not in ran.err
    assert stores.snapshot(store) == before
    assert [p.name for p in store.parent.iterdir()].count(store.name) == 1


BESIDE_WRITERS = [args for args in READING if args[0] != "recover"]
WRITERS = 3


@pytest.mark.parametrize("writer_number", range(WRITERS))
def test_reading_beside_a_process_that_writes(writer_number: int, new_store: Path, cli: Cli) -> None:
    assert cli("--store", new_store, "put", "T", "--keys", "k1", "--body", "first").code == 0
    writer = process("--store", new_store, "put", "T", "--count", "10000000", "--size", "300", "--sync")
    try:
        wait_for((new_store / "abort").exists)
        for args in 3 * BESIDE_WRITERS[writer_number::WRITERS]:
            ran = cli("--store", new_store, *args)
            assert ran.code == 0, (args, ran)
            assert "rstore: " not in ran.err, (args, ran)
        assert cli("--store", new_store, "status", "--json").json["pid"] == writer.pid
        assert cli("--store", new_store, "put", "T").code == 3
        assert cli("--store", new_store, "recover", "--yes").code == 3
        assert writer.poll() is None
    finally:
        end(writer)
    assert cli("--store", new_store, "verify-crc").code == 0


# --- documents -------------------------------------------------------------------------------------------------------


def test_the_readme_names_every_command_and_option(cli: Cli) -> None:
    import re

    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    dumps = [("dump", kind) for kind in DUMPS]
    for words in [*((name,) for name in COMMANDS), *dumps]:
        options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", cli(*words, "--help").out, flags=re.MULTILINE))
        for option in options - {"--help", "--quiet", "--config"}:
            assert f"`{option}`" in readme or f" {option} " in readme, (words, option)
        assert words[0] in readme


def test_an_error_prints_nothing_that_a_terminal_would_act_on(cli: Cli) -> None:
    ran = cli("--store", "/nowhere\x1b[2J\u202e", "status")
    assert ran.code != 0
    message, _, command = ran.err.partition(" (")
    assert message == "rstore: no store here: /nowhere\\x1b[2J\\u202e"
    assert "'/nowhere\x1b[2J\u202e'" in command  # the user's own name, to be typed again


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_answer_that_finds_no_space_is_one_line(
    buffered: bool, options: tuple[str, ...], fixture_store: Store
) -> None:
    """Whether the write fails at once, or at the flush in the end: it was a traceback, exit code 120."""
    words = ("--store", str(fixture_store("clean-small")), "status", *options)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rstore_cli.app", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"},
        )
    assert (done.returncode, done.stderr) == (5, "rstore: no space left on device\n")
