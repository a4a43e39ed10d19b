"""`rstore doctor`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rstore_cli.conftest import Cli
from tests.support import newer, stores
from tests.support.fixtures import FIXTURES

Store = Callable[[str], Path]


def test_a_sound_store(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    before = stores.snapshot(store)
    ran = cli("--store", store, "doctor", "--json")
    assert (ran.code, ran.json["ok"]) == (0, True)
    assert ran.json["sizes"]["mappedFileSizeCommitLog"] == 131072
    assert all(f.keys() == {"code", "severity", "where", "message", "hint"} for f in ran.json["findings"])
    text = cli("--store", store, "doctor")
    assert "Nothing prevents a broker's start." in text.out
    assert "Code 14 (SERVICE_NOT_AVAILABLE)" in text.out
    assert stores.snapshot(store) == before


@pytest.mark.leaves("file-stray")
def test_what_keeps_a_broker_from_starting_is_1(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    (store / "commitlog" / ".DS_Store").touch()
    ran = cli("--store", store, "doctor")
    assert ran.code == 1
    assert "ERROR    commitlog/.DS_Store  [file-stray]" in ran.out


@pytest.mark.leaves("config-bad", "config-missing")
def test_a_broker_that_would_start_without_its_topics_is_not_said_not_to_start(fixture_copy: Store, cli: Cli) -> None:
    """ConfigManager#load: an empty file with an empty .bak is no reason for Apache's broker not to start."""
    store = fixture_copy("clean-small")
    (store / "config").mkdir()
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).touch()
    ran = cli("--store", store, "doctor")
    assert ran.code == 1
    assert ran.out.startswith("Do not start a broker yet:\n")
    assert "a broker starts without it" in ran.out
    assert "does not start" not in ran.out


def test_no_store_is_a_finding(tmp_path: Path, cli: Cli) -> None:
    ran = cli("--store", tmp_path / "none", "doctor", "--json")
    assert ran.code == 1
    assert "store-missing" in [f["code"] for f in ran.json["findings"]]


COMMENTED = FIXTURES / "conf" / "commented.properties"


def test_a_configuration_alone(cli: Cli) -> None:
    ran = cli("doctor", "--conf", COMMENTED)
    assert (ran.code, ran.err) == (0, "")
    assert "16 settings: 8 in force, 4 misread, 4 ignored" in ran.out
    assert "   5  brokerName = 'broker-a'" in ran.out
    assert "   7  brokerId  [misread]" in ran.out
    assert "nothing is ever deleted" in ran.out
    found = cli("doctor", "--conf", COMMENTED, "--json").json
    assert (found["ok"], len(found["keys"]), len(found["dangers"])) == (True, 16, 1)


def test_a_configuration_that_no_broker_starts_with_is_1(tmp_path: Path, cli: Cli) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerRole=SLAVE\nmappedFileSizeCommitLog=100\n")
    ran = cli("doctor", "--conf", conf)
    assert ran.code == 1
    assert "[conf-start]" in ran.out
    with_store = cli("--store", tmp_path, "-c", conf, "doctor")
    assert with_store.out == ran.out + "The store was not checked: these sizes are invalid.\n"
    assert cli("--store", tmp_path, "-c", conf, "status").error_line.endswith(f"rstore doctor --conf {conf})")
    assert cli("doctor", "--conf", tmp_path / "none").code == 5
    directory = cli("doctor", "--conf", tmp_path)
    assert (directory.code, directory.out) == (5, "")
    assert f"a directory, not a file: {tmp_path} (name the broker's properties file)" in directory.error_line


@pytest.mark.parametrize(
    ("text", "code", "severity"),
    [
        ("aclEnable=true\n", "conf-open", "info"),
        ("aclEnable=true\nbrokerRole=SYNC_MASTER\nhaListen=0.0.0.0\n", "conf-danger", "warning"),
        ("aclEnable=true\nhaAllow=10.0.0.7\nhaListen=0.0.0.0\n", None, ""),
        ("brokerRole=SYNC_MASTER\n", None, ""),
    ],
)
def test_a_replication_port_that_is_open_to_all(
    text: str, code: str | None, severity: str, fixture_store: Store, tmp_path: Path, cli: Cli
) -> None:
    """Told from the file alone, and with a store; no exit code changes."""
    conf = tmp_path / "broker.conf"
    conf.write_text(text)
    alone = cli("doctor", "--conf", conf)
    assert alone.code == 0
    assert ("gets the log" in alone.out, f"[{code}]" in alone.out) == (code is not None, code is not None)
    with_store = cli("--store", fixture_store("clean-small"), "-c", conf, "--json", "doctor")
    assert with_store.code == 0
    found = [(one["code"], one["severity"]) for one in with_store.json["findings"] if "gets the log" in one["message"]]
    assert found == ([(code, severity)] if code else [])
    dangers = cli("doctor", "--conf", conf, "--json").json["dangers"]
    assert [one["note"] for one in dangers] == ([severity == "info"] if code else [])


def test_whom_serve_lets_in_with_a_file_and_its_options(fixture_store: Store, tmp_path: Path, cli: Cli) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerRole=SYNC_MASTER\nhaAllow=10.0.0.7\n")
    ran = cli("doctor", "--conf", conf)
    assert (ran.code, ran.err) == (0, "")
    lines = [line.strip() for line in ran.out.splitlines()]
    assert "With this file the daemon (serve) listens on 127.0.0.1. With --listen ADDRESS:" in lines
    assert "broker: any client may read and write: there is no ACL, and no certificate is demanded" in lines
    assert "closes it: --acl FILE, or --tls-mode enforcing with --tls-client-auth require" in lines
    assert "replication: slaves that haAllow names copy the log" in lines
    alone = cli("doctor", "--conf", conf, "--json").json["daemon"]
    assert (alone["starts"], [one["port"] for one in alone["ports"] if one["open"]]) == (True, ["clients", "names"])
    with_store = cli("--store", fixture_store("clean-small"), "-c", conf, "--json", "doctor").json
    assert with_store["daemon"] == alone
    assert cli("--store", fixture_store("clean-small"), "--json", "doctor").json["daemon"] is None

    conf.write_text(f"tls.config.file={tmp_path / 'none'}\n")
    ran = cli("doctor", "--conf", conf)
    assert ran.code == 0
    assert "The daemon (serve) does not start with this file here: reading TLS settings: no such file" in ran.out
    assert str(tmp_path / "none") in ran.out


def test_every_command_takes_a_configuration_as_a_broker_does(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    ran = cli("--store", store, "-c", COMMENTED, "status")
    assert ran.code == 0
    (note,) = ran.err.splitlines()
    assert note.startswith(f"note: a broker ignores or misreads these settings of {COMMENTED}: listenPort, brokerId, ")
    assert note.endswith(f": rstore doctor --conf {COMMENTED}")
    assert "nothing is ever deleted, however full the disk is" in " ".join(ran.out.split())
    assert "only when the disk gets full" not in ran.out
    assert cli("--store", store, "-c", COMMENTED, "-q", "status").err == ""
    text = cli("--store", store, "-c", COMMENTED, "doctor")
    assert "[conf-danger]" in text.out
    assert text.err == ""


def test_a_file_of_rocketmq_5_is_as_it_should_be(fixture_store: Store, tmp_path: Path, cli: Cli) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("enableControllerMode=true\nbrokerRole=SLAVE\nbrokerId=-1\nenabledAppendPropCRC=true\n")
    store = fixture_store("clean-small")
    assert cli("--store", store, "-c", conf, "status").err == ""
    assert cli("doctor", "--conf", conf).code == 0
    found = cli("--store", store, "-c", conf, "--json", "doctor").json["findings"]
    newer = [one for one in found if one["code"].startswith("conf-")]
    assert [(one["code"], one["severity"]) for one in newer] == [("conf-newer", "info")] * 2


@pytest.mark.parametrize(
    "words",
    [
        *("check", "plan-start", "verify-crc", "recover --dry-run", "reindex --dry-run", "expire --dry-run --force"),
        *("truncate --to-offset 0 --dry-run", "rebuild-config --dry-run", "dump commitlog", "get T 0", "query T k"),
        *("offsets list", "config history", "salvage list", "salvage scan", "undo --list", "put T --body x", "flush"),
        *("recover --yes", "reindex --yes", "expire --yes", "salvage replay --dry-run", "top --once"),
        "replicate --from 127.0.0.1:1 --until-caught-up",
    ],
)
def test_no_command_refuses_it(words: str, fixture_copy: Store, cli: Cli) -> None:
    """Whatever a command has to say of the store: nothing of it is about the file, but one note."""
    ran = cli("--store", fixture_copy("clean-small"), "-c", COMMENTED, *words.split())
    notes = [
        line
        for line in ran.err.splitlines()
        if str(COMMENTED) in line and not line.startswith("rstore:") and "Next: rstore" not in line
    ]
    assert len(notes) == 1, ran
    assert notes[0].startswith("note: a broker ignores or misreads these settings of ")
    assert ran.code != 2 or words.startswith("query"), ran


def test_delay_levels_that_no_broker_reads(tmp_path: Path, cli: Cli) -> None:
    """What needs no levels runs; what does refuses with the file, the key, the value and a command that works."""
    small, conf, store = tmp_path / "small.conf", tmp_path / "broker.conf", tmp_path / "store"
    small.write_text("mappedFileSizeCommitLog=131072\nmaxMessageSize=65536\nmaxHashSlotNum=200\nmaxIndexNum=800\n")
    levels = "1s 5s # \u5ef6\u65f6\u7ea7\u522b"
    conf.write_text(f"{small.read_text()}messageDelayLevel={levels}\n", encoding="utf-8")
    assert cli("--store", store, "-c", small, "init").code == 0
    assert cli("--store", store, "-c", small, "put", "T", "--body", "later", "--delay-level", "3").code == 0
    bad = ("--store", store, "-c", conf)
    why = f"messageDelayLevel = '{levels}' is not a list of times"
    note = f"note: a broker does not start with {conf}: {why}: rstore doctor --conf {conf}"
    runs = ("status", "recover --dry-run", "verify-crc", "dump commitlog", "reindex --dry-run", "put T --body a")
    for command in runs:
        ran = cli(*bad, *command.split())
        assert (ran.code, ran.err.splitlines()) == (0, [note]), command
    assert cli(*bad, "get", "T", "0", "0").code == 0
    start = cli(*bad, "plan-start", "--json")
    assert (start.code, start.json["outcome"], start.json["why"]) == (1, "refuses", f"{conf}: {why}")
    assert cli("--store", store, "-c", small, "plan-start", "--json").json["outcome"] == "opens"
    before = stores.snapshot(store)
    for command in ("put T --body b --delay-level 2", "serve --port 0"):
        refused = cli(*bad, *command.split())
        assert refused.code == 2, command
        assert f"{why}: {conf} (write times separated by one blank, like 1s 5s 1m 2h; " in refused.err.splitlines()[-1]
        assert refused.err.splitlines()[-1].endswith(f"then: rstore doctor --conf {conf})")
    assert stores.snapshot(store) == before
    told = cli("doctor", "--conf", conf)
    assert (told.code, why in told.out) == (1, True)


def test_a_configuration_that_would_take_hours_to_read(tmp_path: Path, cli: Cli) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(b"deleteWhen=" + b"\\\n" * 300_000)
    refused = cli("doctor", "--conf", conf)
    assert refused.code == 2
    assert refused.error_line.startswith(f"rstore: line 101: a value of more than 100 lines: {conf}")


def test_another_release(fixture_store: Store, cli: Cli, tmp_path: Path) -> None:
    store = fixture_store("clean-small")
    before = stores.snapshot(store)
    ran = cli("--store", store, "doctor", "--upgrade-to", "5.5")
    assert (ran.code, ran.out.splitlines()) == (
        0,
        [
            "RocketMQ 5.5.0 on this store. The store is of RocketMQ 4.9, as far as it tells.",
            "Nothing that was looked at is lost, or prevents its start.",
            "No settings were judged: name the broker's file with -c.",
        ],
    )
    conf = tmp_path / "broker.conf"
    conf.write_text("aclEnable=true\n")
    ran = cli("--store", store, "-c", conf, "--json", "doctor", "--upgrade-to", "5.3.3")
    assert (ran.code, ran.json["ok"], ran.json["upgradeTo"], ran.json["from"]) == (1, False, "5.3.3", "4.9.8")
    assert [one["code"] for one in ran.json["findings"]] == ["acl-ignored", "default-changed"]
    alone = cli("doctor", "--conf", conf, "--upgrade-to", "5.3.3")
    assert alone.code == 1
    assert f"RocketMQ 5.3.3 on the settings in {conf}." in alone.out
    assert f"ERROR    {conf}:1  [acl-ignored]" in alone.out
    assert cli("doctor", "--conf", conf, "--upgrade-to", "5.3.1").code == 0
    assert cli("--store", store, "doctor", "--upgrade-to", "6.0").code == 2
    assert cli("--store", tmp_path / "none", "doctor", "--upgrade-to", "5.5.0").code == 4
    assert stores.snapshot(store) == before


@pytest.mark.leaves
def test_a_way_back_that_loses_messages(cli: Cli, tmp_path: Path) -> None:
    ran = cli("--store", newer.unpack("timer", tmp_path), "doctor", "--upgrade-to", "4.9.8")
    assert ran.code == 1
    assert "ERROR    timerlog/  [timer-waits]" in ran.out
    assert "dump timerlog --due lists them" in ran.out
