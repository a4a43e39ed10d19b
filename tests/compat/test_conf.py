"""What we say of a broker's properties file is what 4.9.8 makes of it: its own classes read the same files."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.broker_conf import in_force
from engine.broker_conf.all_keys import all_keys
from engine.broker_conf.delete_when import read_delete_when
from engine.broker_conf.keys import BY_PROCESSORS
from engine.broker_conf.properties import read_properties
from engine.broker_conf.report import Judgement, read_conf
from engine.broker_conf.start_rules import unreadable_server
from engine.broker_conf.values import as_text
from engine.config import NOT_SETTINGS, StoreConfig, apache_key
from engine.errors import InvalidArgument
from tests.compat import apache, shared_classes, toolchain
from tests.compat.confs import conf
from tests.support.fixtures import FIXTURES

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_store")]
FILES = 500
LOGBACK = """<configuration>
  <appender name="C" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%m%n</pattern></encoder></appender>
  <root level="INFO"><appender-ref ref="C"/></root>
</configuration>
"""


def ran(*args: str) -> tuple[str, list[apache.Line]]:
    """The home of the run, and the lines of `Conf`."""
    with apache.command("Conf", list(args)) as words:
        home = next(word.partition("=")[2] for word in words if word.startswith("-Duser.home="))
        environment = {k: v for k, v in os.environ.items() if k not in ("ROCKETMQ_HOME", "NAMESRV_ADDR")}
        found = subprocess.run(words, capture_output=True, timeout=apache.TIMEOUT, check=False, env=environment)
    assert found.returncode == apache.Exit.OPENED, found.stderr.decode() + found.stdout.decode()[-2000:]
    return home, apache.parse(found.stdout)


def of_this_machine(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def test_every_key_is_known_by_name_type_default_and_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    home, lines = ran("keys")
    of_this_machine(monkeypatch, home)
    (processors,) = (line["count"] for line in lines if line["type"] == "processors")
    theirs = {(line["class"], line["key"]): line for line in lines if line["type"] == "key"}
    ours = {(key.owner, key.name): key for keys in all_keys().values() for key in keys}
    assert ours.keys() == theirs.keys()
    assert len(theirs) > 180
    for place, key in ours.items():
        line = theirs[place]
        assert key.kind.value in line["types"], place
        assert set(line["types"]) <= {key.kind.value, "String"}, place
        assert key.meaning, place
        if place[1] in BY_PROCESSORS:
            assert BY_PROCESSORS[place[1]][1](processors) == line["default"], place
        elif not key.machine:
            assert (key.default, in_force.default_of(key)) == (line["default"], line["default"]), place
        else:
            assert key.default is None, place
    assert (
        in_force.of_file({})[in_force.STORE, "storePathCommitLog"]
        == theirs[in_force.STORE, "storePathCommitLog"]["default"]
    )


def test_the_settings_of_a_store_have_apaches_defaults() -> None:
    keys = {name: keys[-1] for name, keys in all_keys().items()}
    for field in dataclasses.fields(StoreConfig):
        key = keys.get(apache_key(field.name))
        if field.name in NOT_SETTINGS or key is None or key.machine:
            continue
        value = getattr(StoreConfig(), field.name)
        assert getattr(value, "value", value) == key.default, key.name


def test_in_force_is_what_apache_has_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Properties, values, hours of retention and name servers of each file, and a verdict that says so of each line."""
    for seed in range(FILES):
        (tmp_path / f"{seed:04d}").write_bytes(conf(seed))
    home, lines = ran(str(tmp_path))
    of_this_machine(monkeypatch, home)
    assert len(lines) == FILES
    before = in_force.of_file({})
    seen: dict[str, int] = {}
    for line in lines:
        data = (tmp_path / line["file"]).read_bytes()
        report = read_conf(data)
        if "error" in line:
            assert not report.starts, line["file"]
            with pytest.raises(InvalidArgument):
                read_properties(data)
            seen["error"] = seen.get("error", 0) + 1
            continue
        values = read_properties(data).values
        assert settings_of(values) == settings_of(line["properties"]), line["file"]
        ours = in_force.of_file(values)
        theirs = {(owner, key): value for owner, keys in line["inForce"].items() for key, value in keys.items()}
        changed = {place: value for place, value in ours.items() if value != before[place]}
        assert changed == {place: value for place, value in theirs.items() if place in before}, line["file"]
        assert hours_of(str(ours[in_force.STORE, "deleteWhen"])) == line["hours"], line["file"]
        servers = ours[in_force.BROKER, "namesrvAddr"]
        assert (servers is None or unreadable_server(str(servers)) is None) == line["nameServers"], line["file"]
        for verdict in report.verdicts:
            seen[verdict.judgement.value] = seen.get(verdict.judgement.value, 0) + 1
            check_verdict(verdict, ours, line)
    assert all(seen[judgement.value] > 100 for judgement in Judgement), seen
    assert seen["error"] > 5


def settings_of(values: dict[str, str]) -> dict[str, str]:
    """Without an empty key, which a backslash at the end of a file makes in Java."""
    return {key: value for key, value in values.items() if key}


def hours_of(text: str) -> str:
    found = read_delete_when(text)
    return "".join("T" if hour in found.hours else "F" if found.stops_at is None else "X" for hour in range(24))


def check_verdict(verdict: Any, ours: in_force.InForce, line: apache.Line) -> None:
    """Keys that are in force or misread are Apache's, and the others are not."""
    there = {key for _, key in ours}
    judgement, where = verdict.judgement, (line["file"], verdict.key)
    if judgement in (Judgement.IN_FORCE, Judgement.MISREAD) and verdict.key in there:
        assert verdict.in_force in [value for (_, key), value in ours.items() if key == verdict.key], where
        assert verdict.written == line["properties"][verdict.key], where
    elif judgement is Judgement.UNKNOWN:
        assert verdict.key not in there, where
    if judgement is Judgement.IN_FORCE and isinstance(verdict.in_force, str):
        assert verdict.in_force == verdict.written, where


STARTS = {
    "a guide's": (FIXTURES / "conf" / "commented.properties").read_bytes(),
    "overruled": b"brokerId=5\nhaListenPort=7\nlistenPort=20001\nmappedFileSizeConsumeQueue=20001\nregionId=r \n",
    "a slave's": b"brokerRole=SLAVE\nbrokerId=3\ntransientStorePoolEnable=true\nenableBatchPush=true\n",
    "a role that can't be read": b"brokerRole=SLAVE # the second\nbrokerId=1\n",
}


@pytest.mark.parametrize("name", STARTS)
def test_the_start_of_a_broker(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BrokerStartup itself, with -p, which has it print all settings and end: what the start overrules."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "logback_broker.xml").write_text(LOGBACK)
    (tmp_path / "broker.conf").write_bytes(STARTS[name])
    of_this_machine(monkeypatch, str(tmp_path))
    try:
        class_path = toolchain.apache_broker().class_path
    except apache.Missing as missing:
        pytest.skip(str(missing))
    words = [
        str(toolchain.java()),
        *toolchain.BRIEF,
        *shared_classes.options(class_path),
        f"-Drocketmq.home.dir={tmp_path}",
        f"-Duser.home={tmp_path}",
        "-Dfile.encoding=UTF-8",
    ]
    words += ["-cp", class_path, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(tmp_path / "broker.conf"), "-p"]
    found = subprocess.run(words, capture_output=True, timeout=apache.TIMEOUT, check=False, cwd=tmp_path)
    report = read_conf(STARTS[name])
    assert (report.starts, found.returncode) == (True, 0), found.stdout.decode() + found.stderr.decode()
    told = dict(line.split("=", 1) for line in found.stdout.decode().split("\n") if "=" in line)
    by_getters = {"mappedFileSizeConsumeQueue", "transientStorePoolEnable", "storePathCommitLog"}
    afterwards = {"bitMapLengthConsumeQueueExt", "registerNameServerPeriod"}
    compared = 0
    for (owner, key), value in report.settings.items():
        (known,) = (one for one in all_keys()[key] if one.owner == owner)
        if key not in by_getters | afterwards and (not known.machine or key in STARTS[name].decode()):
            field = "isEnableBatchPush" if key == "enableBatchPush" else key
            assert told[field] == as_text(value), (owner, key)
            compared += 1
    assert compared > 160
