"""What Tab writes: commands, options, names of the store on the line; in bash, zsh and fish themselves."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rstore_cli.app import COMMANDS, root_command
from rstore_cli.completion import rows
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.walking import commands
from tests.support import fixtures

Store = Callable[[str], Path]
TOPICS = sorted({line["topic"] for line in fixtures.dump("clean-small") if line["type"] == "queue"})


def values(*words: str) -> list[str]:
    """What may stand for the last word."""
    return [value for kind, value, _ in rows(words[:-1], words[-1], root_command()) if kind == "plain"]


def kinds(*words: str) -> list[str]:
    return [kind for kind, _, _ in rows(words[:-1], words[-1], root_command())]


def test_commands_and_their_commands() -> None:
    assert values("") == list(COMMANDS)
    assert values("re") == ["recover", "reindex", "rebuild-config", "replicate", "rewind", "restore", "report"]
    assert values("--store", "/x", "-q", "salvage", "") == ["scan", "list", "show", "export", "replay", "prune"]
    assert values("nonsense", "") == []


def test_options_of_every_command_once() -> None:
    for words, command in commands():
        told = values(*words, "-")
        assert set(told) >= {name for one in command.params if one.param_type_name == "option" for name in one.opts}
        assert {"--store", "-c", "--json", "-h"} <= set(told)
    assert "--store" not in values("get", "--store", "/x", "--")
    assert "--topic" in values("salvage", "replay", "--topic", "A", "--")  # may be given again
    assert values("--", "-") == []


@pytest.mark.leaves("config-missing")
def test_topics_groups_and_queues_of_the_store(fixture_store: Store, fixture_copy: Store) -> None:
    store = str(fixture_store("clean-small"))
    assert values("get", "--store", store, "") == TOPICS
    assert values(f"--store={store}", "query", "O") == ["Orders"]
    assert values("--store", "=", store, "get", "Orders", "") == values("get", "--store", store, "Orders", "") != []
    assert values("get", "--store", store, "Orders", "") == ["0", "1", "2", "3", "9"]
    assert values("reindex", "--store", store, "--topic", "Or") == ["Orders"]
    assert values("reindex", "--store", store, "--topic=Or") == ["--topic=Orders"]
    written = fixture_copy("clean-small")
    (written / "config").mkdir()
    (written / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Orders@settlement":{0:1}}}')
    assert values("--store", str(written), "offsets", "list", "--group", "s") == ["settlement"]
    assert values("--store", str(written), "offsets", "set", "settlement", "Ord") == ["Orders"]


def test_repairs(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("crashed-small")
    assert cli("--store", store, "recover", "--yes").code == 0
    (repair,) = os.listdir(store / "salvage")
    for words in (["show"], ["export"], ["replay"], ["prune"], ["prune", repair]):
        assert values("--store", str(store), "salvage", *words, "") == [repair]
    assert values("salvage", "show", "--store", str(store), "x") == []


def test_the_store_of_the_environment_and_of_a_conf(fixture_store: Store, tmp_path: Path, monkeypatch) -> None:
    store = fixture_store("clean-small")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\n")
    assert values("-c", str(conf), "get", "") == TOPICS
    monkeypatch.setenv("RSTORE_STORE", str(store))
    assert values("get", "") == TOPICS


def test_words_and_paths() -> None:
    assert values("top", "--sort", "") == ["put", "get", "lag", "name"]
    assert kinds("--store", "") == ["dir"]
    assert kinds("-c", "") == ["file"]
    assert kinds("put", "T", "--jsonl", "x") == ["file"]
    assert kinds("recover", "--salvage-dir=") == ["dir"]
    assert kinds("recover", "--jobs", "") == []


@pytest.mark.parametrize("place", ["/nowhere/at/all", "/dev/null", ""])
def test_no_store_is_no_error(place: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RSTORE_COMPLETE", "zsh")
    (tmp_path / "broken.conf").write_text("storePathRootDir=\nmappedFileSizeCommitLog=much\n")
    for words in (["--store", place], ["-c", str(tmp_path / "broken.conf")], ["-c", str(tmp_path / "none.conf")]):
        for asked in (["get", ""], ["offsets", "list", "--group", ""], ["salvage", "show", ""], ["get", "T", ""]):
            ran = cli(*words, *asked)
            assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_quotes_that_bash_hands_over(fixture_store: Store, tmp_path: Path, cli: Cli, monkeypatch) -> None:
    link = tmp_path / "my store"
    link.symlink_to(fixture_store("clean-small"))
    monkeypatch.setenv("_RSTORE_COMPLETE", "bash")
    for typed in (f"'{link}'", f'"{link}"', str(link).replace(" ", "\\ ")):
        assert cli("--store", typed, "get", "Ord").out == "plain\tOrders\t\n"
    assert cli("--store", f"'{link}'", "get", '"Ord').out == "plain\tOrders\t\n"


def test_it_is_quick(fixture_store: Store) -> None:
    """No command is imported to list them all, and names are found without what reads messages."""
    code = """if True:
        import sys
        from rstore_cli.app import main
        main(sys.argv[2:])
        found = [m for m in sys.modules if m.startswith(tuple(sys.argv[1].split(",")))]
        sys.exit(repr(found) if found else 0)
    """
    store = str(fixture_store("clean-small"))
    for heavy, words in (("numpy,rich,engine.repair,rstore_cli.commands.", [""]), ("numpy,rich", ["get", ""])):
        ran = subprocess.run(
            [sys.executable, "-c", code, heavy, "--store", store, *words],
            capture_output=True, text=True, check=False, env={**os.environ, "_RSTORE_COMPLETE": "fish"},
        )  # fmt: skip
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.startswith("plain\t")


def test_the_script_is_printed(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish"):
        text = cli("completion", shell).out
        assert f"_RSTORE_COMPLETE={shell}" in text
        assert json.loads(cli("completion", shell, "--json").out)["script"].strip() == text.strip()
    assert cli("completion", "csh").code == 2


# --- the shells themselves -------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`rstore` on PATH, and each shell's script beside it."""
    place = tmp_path / "bin"
    place.mkdir()
    program = place / "rstore"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rstore_cli.app "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return place


def script(place: Path, shell: str, cli: Cli) -> Path:
    path = place / f"script.{shell}"
    path.write_text(cli("completion", shell).out)
    return path


@contextmanager
def shell_on_terminal(*words: str) -> Iterator[Callable[[str, str], str]]:
    """An interactive shell: `press(keys, wanted)` types, and reads until `wanted` is seen."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} here")
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", PS1="> ", HISTFILE="/dev/null", LINES="40", COLUMNS="300")
        os.execvp(words[0], words)

    def press(keys: str, wanted: str) -> str:
        os.write(master, keys.encode())
        seen, due = b"", time.monotonic() + 60
        while wanted.encode() not in seen:
            assert time.monotonic() < due, seen[-2000:]
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 1 << 16)
        return seen.decode()

    try:
        yield press
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(master)


def test_bash(program: Path, fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    with shell_on_terminal("bash", "--norc", "--noprofile", "-i") as press:
        press(f"source {script(program, 'bash', cli)}; echo rea''dy\n", "ready")
        press(f"rstore --store {store} query Ord\t", "Orders ")
        press("\x15rstore rein\t", "reindex ")
        press(f"--store={store} --topic=Ord\t", "--topic=Orders ")
        press("\x15rstore --store /nowhere get x\tstill", "still")
        press(f"\x15rstore --store {store.parent}/clean-sm\t", "clean-small/")


def test_zsh(program: Path, fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    with shell_on_terminal("zsh", "-f", "-i") as press:
        source = script(program, "zsh", cli)
        press(f"autoload -U compinit; compinit -u -D; source {source}; echo rea''dy\n", "ready")
        press(f"rstore --store {store} query Ord\t", "Orders")
        press("\x15rstore rein\t", "reindex")
        press(f"\x15rstore --store {store.parent}/clean-sm\t", "all")  # zsh writes what is added only


def test_fish(program: Path, fixture_store: Store, cli: Cli) -> None:
    if shutil.which("fish") is None:
        pytest.skip("no fish here")
    store = fixture_store("clean-small")

    def asked(line: str) -> list[str]:
        code = f"source {script(program, 'fish', cli)}; complete -C '{line}'"
        return subprocess.run(["fish", "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()

    assert asked(f"rstore --store {store} query Ord") == ["Orders"]
    assert asked("rstore rein") == [f"reindex\t{COMMANDS['reindex']}"]
    assert asked("rstore --store /nowhere get ") == []
    assert asked(f"rstore --store {store.parent}/clean-sm") == [f"{store}/"]
