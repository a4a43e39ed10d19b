"""`send` and `consume`, against a daemon that runs beside."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.format.sysflag import COMPRESSED
from engine.wire.codes import RequestCode
from tests.docs.markdown import section
from tests.rstore_cli.conftest import Cli, process
from tests.rstore_cli.test_copy import PATIENCE_S, end_of
from tests.rstore_cli.test_serve import Process, command, root
from tests.support.wire import Wire, put_request

__all__ = ["root"]

PATIENTLY = ("--timeout", "60")
"""A busy daemon may answer later than the usual three seconds: the message would be sent, and counted, twice."""


def broker_of(names: str) -> str:
    """The broker that a name server knows."""
    with Wire(names) as wire:
        info = json.loads(bytes(wire.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body))
    return str(info["brokerAddrTable"]["broker-a"]["brokerAddrs"]["0"])


@pytest.fixture
def names(root: Path) -> Iterator[str]:
    process = Process(root)
    yield process.where["nameService"]
    assert process.stop() == 0


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_is_sent_is_consumed(cli: Cli, names: str, tmp_path: Path) -> None:
    words = ("--body", "hello", "--tags", "a", "--keys", "k1 k2", "--property", "n=1")
    one = cli("send", "T", "--namesrv", names, *PATIENTLY, *words)
    assert one.code == 0
    assert one.out.startswith("SEND_OK  T/")
    (tmp_path / "lines").write_text("one\n\ntwo\n")
    sent = cli("send", "T", "--namesrv", names, *PATIENTLY, "--lines", str(tmp_path / "lines"), "--json")
    assert [row["status"] for row in rows(sent.out)] == ["SEND_OK"] * 2
    got = cli("consume", "T", "--namesrv", names, "--from-beginning", "--json")
    assert sorted(str(row["body"]) for row in rows(got.out)) == ["hello", "one", "two"]
    again = cli("consume", "T", "--namesrv", names, "--from-beginning", "--tags", "a")
    assert "hello" in again.out
    assert "two" not in again.out
    (tmp_path / "jsonl").write_text(got.out)
    copied = cli("send", "U", "--namesrv", names, *PATIENTLY, "--jsonl", str(tmp_path / "jsonl"))
    assert copied.out.splitlines()[-1].startswith("3 messages in ")
    copies = cli("consume", "U", "--namesrv", names, "--from-beginning", "--json")
    assert sorted(str(row["body"]) for row in rows(copies.out)) == ["hello", "one", "two"]
    load = cli("send", "V", "--namesrv", names, *PATIENTLY, "--count", "200", "--size", "100", "--json")
    assert load.json["sent"] == 200


FLAGS = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}
MODULES = {"lz4": ("lz4", "lz4.frame"), "zstd": ("zstandard", "zstandard")}


def test_compressed_bodies(cli: Cli, names: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = ["plain " * 50, "short"]
    (tmp_path / "lines").write_text("\n".join(bodies))
    for kind, flags in FLAGS.items():
        words = ("--namesrv", names, "--compression", kind, "--compress-above", "100")
        assert cli("send", kind, "--lines", str(tmp_path / "lines"), *words, *PATIENTLY).code == 0
        got = cli("consume", kind, "--namesrv", names, "--from-beginning", "--json")
        assert sorted(str(row["body"]) for row in rows(got.out)) == bodies
        stored = [row for queue in range(4) for row in rows(cli("--store", root, "get", kind, queue, "--json").out)]
        assert sorted(int(str(row["sysFlag"])) for row in stored) == [0, flags]
        (packed,) = (row for row in stored if row["sysFlag"])
        plain = ("--store", root, "get", "--msg-id", packed["msgId"], "--decompress", "--json")
        assert rows(cli(*plain).out)[0]["body"] == bodies[0]
        (tmp_path / "jsonl").write_text("".join(json.dumps(row) + "\n" for row in stored))
        assert cli("send", f"{kind}2", "--namesrv", names, *PATIENTLY, "--jsonl", str(tmp_path / "jsonl")).code == 0
        copies = cli("consume", f"{kind}2", "--namesrv", names, "--from-beginning", "--json")
        assert sorted(str(row["body"]) for row in rows(copies.out)) == bodies
        if kind not in MODULES:
            continue
        package, module = MODULES[kind]
        monkeypatch.setitem(sys.modules, module, None)
        for refused in (
            plain,
            ("send", kind, "--body", "x", *words),
            ("consume", kind, *words[:2], "--from-beginning"),
        ):
            ran = cli(*refused)
            assert ran.code == 5
            assert f"needs {package}, which is not installed" in ran.err
            assert "pip install 'rstore[compression]'" in ran.err


def test_a_group_continues_where_it_stopped(cli: Cli, names: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"{i}\n" for i in range(6)))
    cli("send", "T", "--namesrv", names, *PATIENTLY, "--lines", str(tmp_path / "lines"))
    bodies: list[object] = []
    for _ in range(2):
        got = cli("consume", "T", "--namesrv", names, "--group", "G", "--from-beginning", "-n", "3", "--json")
        assert got.code == 0
        bodies += [row["body"] for row in rows(got.out)]
    assert sorted(map(str, bodies)) == [str(i) for i in range(6)]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("send", "T", "--body", "x"), 2, "--namesrv is required"),
        (("send", "T", "--namesrv", "nowhere", "--body", "x"), 2, "is not HOST:PORT"),
        (("send", "T", "--namesrv", "127.0.0.1:1", "--body", "x"), 5, "no name server answers"),
        (("send", "--namesrv", "127.0.0.1:1", "--body", "x"), 2, "TOPIC is required"),
        (("send", "T", "--namesrv", "127.0.0.1:1"), 2, "a body is required"),
        (("send", "T", "--namesrv", "127.0.0.1:1", "--lines", "none"), 5, "none"),
        (("consume", "T", "--namesrv", "127.0.0.1:1"), 2, "nothing would be shown"),
        (("consume", "T", "--namesrv", "127.0.0.1:1", "-f"), 5, "no name server answers"),
    ],
)
def test_what_is_wrong_is_one_line(words: tuple[str, ...], code: int, text: str, cli: Cli) -> None:
    done = cli(*words)
    assert done.code == code, done.err
    assert text in done.err
    assert done.out == ""


def test_the_daemon_of_a_store_is_found(cli: Cli, root: Path, names: str, tmp_path: Path) -> None:
    assert cli("--store", root, "send", "T", "--body", "hello", *PATIENTLY).code == 0
    got = cli("--store", root, "consume", "T", "--from-beginning", "--json")
    assert [row["body"] for row in rows(got.out)] == ["hello"]
    assert rows(cli("consume", "T", "--namesrv", names, "--from-beginning", "--json").out) == rows(got.out)
    (tmp_path / "none").mkdir()
    nobody = cli("--store", tmp_path / "none", "consume", "T", "-f")
    assert (nobody.code, "no daemon runs on this store" in nobody.err) == (5, True), nobody.err


def test_a_store_that_is_typed_is_stronger_than_the_environment(
    cli: Cli, root: Path, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was meant for a store that is tried out went to the cluster of NAMESRV_ADDR."""
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert cli("--store", root, "send", "T", "--body", "hello", "--timeout", "60").code == 0
    assert cli("consume", "T", "--from-beginning", "--store", root).code == 0
    assert cli("admin", "topic", "list", "--store", root).code == 0
    assert cli("--store", root, "send", "T", "--body", "x", "--namesrv", "127.0.0.1:1").code == 5
    monkeypatch.setenv("RSTORE_STORE", str(root))
    assert cli("send", "T", "--body", "x").code == 5
    assert cli("send", "T", "--body", "x", "--namesrv", names, "--timeout", "60").code == 0
    monkeypatch.delenv("NAMESRV_ADDR")
    assert cli("send", "T", "--body", "x", "--timeout", "60").code == 0


def test_the_daemon_of_a_store_that_no_name_server_knows(cli: Cli, root: Path) -> None:
    with ExitStack() as stack:
        process = subprocess.Popen(
            command(root, "--json", "--port", "0", "--no-names"), stdout=subprocess.PIPE, text=True
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        assert process.stdout is not None
        process.stdout.readline()
        done = cli("--store", root, "send", "T", "--body", "x")
        assert (done.code, "known to no name server" in done.err) == (5, True), done.err


def test_messages_in_a_format(cli: Cli, names: str) -> None:
    words = ("send", "T", "--namesrv", names, *PATIENTLY, "--tags", "a", "--keys", "k1 k2", "--property", "n=1")
    cli(*words, "--body", "größe")
    text = r"%t|%p|%o|%k|%K|%s|%S|%g|%%|\x41|\t|%h\n"
    got = cli("consume", "T", "--namesrv", names, "--from-beginning", "--format", text)
    topic, queue, offset, keys, length, body, size, tag, percent, letter, tab, more = got.out.rstrip("\n").split("|")
    assert (topic, offset, keys, length, body, size) == ("T", "0", "k1 k2", "5", "größe", "7")
    assert (tag, percent, letter, tab) == ("a", "%", "A", "\t")
    assert queue.isdecimal()
    assert "n=1" in more.split(",")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-f", "--format", "%z"), "--format: %z stands for nothing"),
        (("-f", "--format", "\\q"), "stands for nothing"),
        (("-f", "--format", "%s", "--json"), "exclude each other"),
        (("-f", "--exec", "cat"), "--exec requires --group"),
        (("--group", "G", "--exec", "no-such-program"), "there is no program no-such-program"),
        (("--group", "G", "--exec", "a 'b"), "no closing quotation"),
        (("--group", "G", "--exec", "cat", "--json"), "--exec excludes"),
    ],
)
def test_a_format_or_program_that_is_wrong(words: tuple[str, ...], text: str, cli: Cli) -> None:
    done = cli("consume", "T", "--namesrv", "127.0.0.1:1", *words)
    assert (done.code, text in done.err) == (2, True), done.err


def test_a_program_for_each_message(names: str, tmp_path: Path) -> None:
    """What it fails with is given back and comes again; no shell sees the message."""
    program = tmp_path / "take"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import os, sys\n"
        "body = sys.stdin.read()\n"
        "again = os.environ['RSTORE_MESSAGE_RECONSUME_TIMES']\n"
        f"with open({str(tmp_path / 'log')!r}, 'a') as log:\n"
        "    print(body, again, os.environ['RSTORE_MESSAGE_PROPERTY_n'], *sys.argv[1:], file=log)\n"
        "sys.exit(3 if body == '$(exit)' and again == '0' else 0)\n"
    )
    program.chmod(0o755)
    (tmp_path / "lines").write_text("one\n$(exit)\ntwo\n")
    tool = [sys.executable, "-m", "rstore_cli.app"]
    sent = [*tool, "send", "T", "--namesrv", names, *PATIENTLY, "--lines", str(tmp_path / "lines"), "--property", "n=5"]
    subprocess.run(sent, check=True, capture_output=True, timeout=60)
    taken = [*tool, "consume", "T", "--namesrv", names, "--group", "G", "--from-beginning", "-n", "3"]
    done = subprocess.run(
        [*taken, "--exec", f"{program} 'an argument'"], check=True, capture_output=True, text=True, timeout=120
    )
    assert "is given back: its command exited with 3" in done.stderr
    assert sorted((tmp_path / "log").read_text().splitlines()) == sorted(
        ["one 0 5 an argument", "two 0 5 an argument", "$(exit) 0 5 an argument", "$(exit) 1 5 an argument"]
    )


def test_a_program_that_vanishes_ends_the_command(cli: Cli, names: str, tmp_path: Path) -> None:
    """What it did not have stays with the group: it failed with no message."""
    program = tmp_path / "take"
    program.write_text('#!/bin/sh\ncat >> "$0.log"\nrm "$0"\n')
    program.chmod(0o755)
    for body in ("one", "two", "three"):
        assert cli("send", "T", "--namesrv", names, *PATIENTLY, "--body", body).code == 0
    words = ("consume", "T", "--namesrv", names, "--group", "G", "--from-beginning")
    done = cli(*words, "--exec", str(program))
    assert (done.code, done.out) == (5, "")
    assert done.error_line == f"rstore: starting a program: no such file or directory: {program}"
    taken = (tmp_path / "take.log").read_text()
    rest = cli(*words, "-n", "2", "--json")
    assert sorted([taken, *(str(row["body"]) for row in rows(rest.out))]) == ["one", "three", "two"]
    assert {row["reconsumeTimes"] for row in rows(rest.out)} == {0}


def test_a_body_that_does_not_decompress_is_given_with_a_warning(cli: Cli, names: str, tmp_path: Path) -> None:
    with Wire(broker_of(names)) as wire:
        wire.ask(*put_request("T", 0, b"no zlib", sys_flag=COMPRESSED))
    warning = "! the body of message 0 of T/0 can't be decompressed: it is given as it is stored\n"
    words = ("consume", "T", "--namesrv", names)
    shown = cli(*words, "--from-beginning", "--format", "%s\\n")
    assert (shown.code, shown.out, shown.err) == (0, "no zlib\n", warning)
    tool = [sys.executable, "-m", "rstore_cli.app", *words, "--group", "G", "--from-beginning", "-n", "1"]
    ran = subprocess.run([*tool, "--exec", "cat"], capture_output=True, text=True, timeout=60, check=True)
    assert (ran.stdout, ran.stderr) == ("no zlib", warning)


def test_the_last_line_of_a_slow_pipe(names: str, cli: Cli) -> None:
    """It is sent when its writer ends, with or without a line break; what came before it is sent at once."""
    tool = [sys.executable, "-m", "rstore_cli.app"]
    words = [*tool, "send", "T", "--namesrv", names, *PATIENTLY, "--lines", "-", "--json"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sending:
        assert sending.stdin is not None
        assert sending.stdout is not None
        sending.stdin.write("one\n")
        sending.stdin.flush()
        assert json.loads(sending.stdout.readline())["status"] == "SEND_OK"
        sending.stdin.write("two")
        sending.stdin.close()
        assert json.loads(sending.stdout.readline())["status"] == "SEND_OK"
        assert sending.wait(60) == 0
    got = cli("consume", "T", "--namesrv", names, "--from-beginning", "--json")
    assert sorted(str(row["body"]) for row in rows(got.out)) == ["one", "two"]


def test_what_is_stored_without_a_slave_is_told(cli: Cli, root: Path) -> None:
    process = Process(root, more="brokerRole=SYNC_MASTER\n")
    words = ("send", "T", "--namesrv", process.where["nameService"], *PATIENTLY)
    one = cli(*words, "--body", "x")
    assert one.out.startswith("SLAVE_NOT_AVAILABLE  T/")
    assert "! 1 message: stored on the master alone: no slave keeps up with it" in one.err
    assert "! 20 messages: stored on the master alone" in cli(*words, "--count", "20").err
    assert process.stop() == 0


def test_topics_that_are_not_there(cli: Cli, names: str) -> None:
    for words in (("--from-beginning",), ("--group", "G")):
        done = cli("consume", "None", "--namesrv", names, *words)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("rstore: no topic None in the cluster (")
    assert cli("send", "bad topic!", "--namesrv", names, "--body", "x").code == 2


def test_a_few_of_many_are_shown(root: Path, names: str) -> None:
    """Readers that have more to give end with the command, and a reader of it that goes away ends a send."""
    program = [sys.executable, "-m", "rstore_cli.app"]
    load = [*program, "send", "T", "--namesrv", names, *PATIENTLY, "--count", "3000", "--size", "10"]
    subprocess.run(load, check=True, capture_output=True, timeout=60)
    shown = [*program, "consume", "T", "--namesrv", names, "--from-beginning", "-n", "3", "--json"]
    done = subprocess.run(shown, check=True, capture_output=True, text=True, timeout=60)
    assert len(rows(done.stdout)) == 3
    lines = "".join(f"{i}\n" for i in range(20_000))
    send = [*program, "send", "U", "--namesrv", names, *PATIENTLY, "--lines", "-"]
    piped = f"{' '.join(map(shlex.quote, send))} | head -n 1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", piped], input=lines, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_a_rate_holds_whatever_is_in_flight(cli: Cli, names: str) -> None:
    took = cli("send", "T", "--namesrv", names, *PATIENTLY, "--count", "21", "--rate", "20", "--json").json["seconds"]
    assert took >= 1.0


def test_the_readme_shows_that_messages_flow(cli: Cli, root: Path, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands as they are pasted; the daemon that the first one starts runs already, on ports that are free."""
    page = Path(__file__).parents[2] / "README.md"
    first, *lines = re.findall(
        r"^    \$ (.+?)(?:\s+# .*)?$", section(page, "See that messages flow"), flags=re.MULTILINE
    )
    assert (first, names != "") == ("rstore serve &", True)
    monkeypatch.setenv("RSTORE_STORE", str(root))
    ran = [cli(*shlex.split(line)[1:]) for line in lines]
    assert [one.code for one in ran] == [0] * len(lines), ran
    sent, read, consumed, formatted, top = (one.out for one in ran)
    assert sent.startswith("SEND_OK  Flow/")
    assert "body: hello" in read
    assert "body: hello" in consumed
    assert re.fullmatch(r"Flow [0-3] 0 flow-1 hello\n", formatted)
    assert re.search(r"^flow\b", top, flags=re.MULTILINE)


def test_what_counts_as_consumed_has_been_shown(cli: Cli, names: str) -> None:
    """It waited in a buffer of this process, and was gone with it; the group would not have been given it again."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    words = ["consume", "T", "--namesrv", names, "--group", "G", "--from-beginning", "-f", "--json"]
    program = [sys.executable, "-m", "rstore_cli.app", *words]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=buffered) as reading:
        try:
            assert cli("send", "T", "--namesrv", names, "--body", "x", "--timeout", "60").code == 0
            assert reading.stdout is not None
            assert json.loads(reading.stdout.readline())["topic"] == "T"
        finally:
            reading.kill()


def test_a_group_keeps_what_could_not_be_shown(cli: Cli, names: str, tmp_path: Path) -> None:
    """Each message after the end of `head`, or on a full disk, was given back: the backlog went to the retry topic."""
    # more than a pipe takes: who has written all of it before `head` ends has nothing to write any more
    (tmp_path / "lines").write_text("".join(f"{i:0300}\n" for i in range(400)))
    assert cli("send", "T", "--namesrv", names, "--lines", str(tmp_path / "lines"), "--timeout", "60").code == 0
    words = ("consume", "T", "--namesrv", names, "--from-beginning", "--group")
    shown = shlex.join([sys.executable, "-m", "rstore_cli.app", *words])
    for line, code, problem in (
        ("full > /dev/full", 5, "rstore: no space left on device\n"),
        ("head | head -n 1; exit ${PIPESTATUS[0]}", 141, ""),
    ):
        done = subprocess.run(
            ["bash", "-c", f"{shown} {line}"], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (code, problem)
    kept = rows(cli(*words, "full", "-n", "400", "--json").out)
    assert sorted(int(str(row["body"])) for row in kept) == list(range(400))
    assert {row["reconsumeTimes"] for row in kept} == {0}


def test_some_lines_at_once(cli: Cli, names: str, tmp_path: Path) -> None:
    """None of those before a line that is wrong was sent, nor one before the next was there to be read."""
    (tmp_path / "jsonl").write_text("".join(f'{{"topic": "T", "body": "{i}"}}\n' for i in range(4)) + "wrong\n")
    words = ("send", "--namesrv", names, "--at-once", "8", *PATIENTLY)
    wrong = cli(*words, "--jsonl", str(tmp_path / "jsonl"))
    assert (wrong.code, wrong.out.count("SEND_OK")) == (2, 4), wrong
    assert "line 5: not JSON" in wrong.err
    assert end_of(names, "T") == 4
    with process(*words, "T", "--lines", "-", stdin=subprocess.PIPE) as sending:
        try:
            assert sending.stdin is not None
            sending.stdin.write("4\n")
            sending.stdin.flush()
            deadline = time.monotonic() + PATIENCE_S
            while end_of(names, "T") < 5:
                assert time.monotonic() < deadline
            sending.send_signal(signal.SIGINT)
            assert sending.wait(PATIENCE_S) == 130
        finally:
            sending.kill()
