"""Whom `rstore serve` lets in with a file, as doctor says it; and that options which it names do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.broker.ha.settings import HaSettings
from engine.broker.ha.slave_list import parse_slave_list
from engine.broker.net.allow import parse_allow_list
from engine.broker.net.tls import TlsSettings
from engine.broker.outlook import doors, outlook
from engine.broker.settings.broker_settings import BrokerSettings
from engine.files.disk import Disk
from tests.engine.broker.acl.accounts import acl_file
from tests.engine.broker.certificates import make

CASES = {
    "nothing": ("", {"clients": True, "replication": True, "names": True}),
    "acl": ("aclEnable=true\n", {"clients": False, "replication": False, "names": False}),
    "tls": ("tls.server.mode=enforcing\n", {"clients": True, "replication": False, "names": True}),
    "allow": ("haAllow=10.0.0.7\nnamesAllow=10.0.0.8\n", {"clients": True, "replication": False, "names": False}),
    "opened": ("aclEnable=true\nhaListen=0.0.0.0\n", {"clients": False, "replication": True, "names": False}),
    "loopback": ("haListen=127.0.0.1\n", {"clients": True, "replication": False, "names": True}),
    "ha tls": ("aclEnable=true\nhaTls=true\n", {"clients": False, "replication": True, "names": False}),
    "slave": ("brokerRole=SLAVE\nnamesrvAddr=10.0.0.9:9876\n", {"clients": True}),
}
CHANGES: dict[str, dict[str, object]] = {
    "--acl": {"acl_enable": True},
    "--ha-allow": {"allow": parse_slave_list("10.0.0.7")},
    "--ha-listen 127.0.0.1": {"listen": "127.0.0.1"},
    "--ha-listen ADDRESS": {"listen": "0.0.0.0"},
    "--ha-tls": {"tls": True},
    "--names-allow": {"names_allow": parse_allow_list("namesAllow", "10.0.0.7")},
    "--tls-mode enforcing": {"mode": "enforcing"},
    "--tls-client-auth require": {"client_auth": "require"},
    "--no-names": {},
}
"""What an option sets: of the daemon, of replication, of TLS."""


def given(written: dict[str, str], phrase: str) -> BrokerSettings:
    """The daemon's settings with the file's and the options of a phrase, as `rstore serve` puts them together."""
    own: dict[str, object] = {}
    ha: dict[str, object] = {}
    tls: dict[str, str] = {}
    for option, changes in CHANGES.items():
        if not re.search(re.escape(option) + r"(?![\w-])", phrase):
            continue
        if option.startswith("--ha-"):
            ha |= changes
        elif option.startswith("--tls-"):
            tls |= {name: str(value) for name, value in changes.items()}
        else:
            own |= changes
    return BrokerSettings.of(written, tls=TlsSettings.of(written, **tls), ha=HaSettings.of(written, **ha), **own)


@pytest.mark.parametrize("name", CASES)
def test_which_ports_are_open_and_what_its_options_do(name: str, tmp_path: Path) -> None:
    text, wanted = CASES[name]
    written = dict(line.split("=", 1) for line in text.splitlines())
    is_slave = "SLAVE" in text
    before = doors(BrokerSettings.of(written), written, is_slave=is_slave)
    assert {door.port: door.open for door in before} == wanted
    for door in before:
        assert bool(door.closes) >= door.open
        for phrase in door.closes:
            if phrase == "--no-names":
                continue
            after = {one.port: one for one in doors(given(written, phrase), written, is_slave=is_slave)}[door.port]
            assert (after.open, after.who) != (door.open, door.who), phrase
            assert not after.open, phrase
        for phrase in door.opens:
            if door.port != "replication":
                continue
            after = {one.port: one for one in doors(given(written, phrase), written, is_slave=is_slave)}[door.port]
            assert after.who != door.who, phrase
            assert after.open == phrase.endswith("for everybody"), phrase


def test_the_file_of_tls_settings_counts(tmp_path: Path) -> None:
    """As Apache's TlsHelper#extractTlsConfigFromFile: what it says of certificates is what counts, but for the mode."""
    made = make(tmp_path / "certificates")
    conf, tls = tmp_path / "broker.conf", tmp_path / "tls.properties"
    tls.write_text(
        f"tls.server.certPath={made.cert}\ntls.server.keyPath={made.key}\n"
        f"tls.server.trustCertPath={made.authority}\ntls.server.need.client.auth=require\n"
    )
    conf.write_text(f"tls.server.mode=enforcing\nhaTls=true\ntls.config.file={tls}\n")
    found = outlook(Disk(), str(conf))
    assert found is not None
    assert found.why is None
    assert {door.port: door.open for door in found.doors} == {"clients": False, "replication": False, "names": True}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tls.server.mode=enforcing\n", "TLS without a certificate"),
        ("tls.config.file=/nowhere/tls.properties\n", "reading TLS settings"),
        ("aclEnable=true\n", "aclEnable without a directory of ACL files"),
        ("haAllow=10.0.0.x\n", "haAllow"),
    ],
)
def test_what_the_daemon_does_not_start_with(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    (tmp_path / "broker.conf").write_text(text)
    found = outlook(Disk(), str(tmp_path / "broker.conf"))
    assert found is not None
    assert why in str(found.why)


def test_a_file_with_accounts(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"aclEnable=true\nrocketmq.acl.plain.file={acl_file(tmp_path)}\n")
    found = outlook(Disk(), str(conf))
    assert found is not None
    assert (found.why, found.doors[0].open) == (None, False)
