"""SERVE.md says what the daemon has: options, settings, metrics, reasons, remarks, commands."""

from __future__ import annotations

import re
from pathlib import Path

from engine.broker.acl.rights import NAMES_WRITE
from engine.broker.ha import settings as ha
from engine.broker.ha.link import Rejection
from engine.broker.ha.master import LINKS, PER_ADDRESS
from engine.broker.net import tls
from engine.broker.put import flow
from engine.broker.requests.table import BROKER, NAMES, RIGHTS
from engine.broker.settings import broker_settings as settings
from engine.broker.settings import live_config
from engine.broker.watch import health, metrics
from engine.config import apache_key
from engine.store import RECONFIGURABLE
from engine.wire.codes import RequestCode
from rstore_cli.app import COMMANDS
from tests.docs.markdown import section, tables
from tests.rstore_cli.conftest import Cli, cli

__all__ = ["cli"]

PAGE = Path(metrics.__file__).parents[1] / "SERVE.md"


def named(text: str) -> set[str]:
    """What stands in code marks."""
    return set(re.findall(r"`([^`]+)`", text))


def test_every_metric_is_there_with_its_meaning() -> None:
    told = tables(section(PAGE, "Metrics"))[0]
    there = [
        {"metric": one.name, "kind": one.kind, "labels": "`, `".join(one.labels), "is": one.means}
        for one in metrics.METRICS
    ]
    assert told == there


def test_metrics_that_alerts_name_are_there() -> None:
    names = {one.name + ("_total" if one.kind == "counter" else "") for one in metrics.METRICS}
    page = PAGE.read_text(encoding="utf-8")
    alerts = page[page.index("Worth an alert") :].partition("\n\n")[0]
    assert {word.split()[0] for word in named(alerts)} <= names


def shown(value: object) -> str:
    """As a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_every_setting_is_there_with_its_default() -> None:
    base = settings.BrokerSettings()
    there = {key: shown(getattr(base, name)) for key, name in settings.FIELDS.items()}
    assert {row["key"]: row["default"] for row in tables(section(PAGE, "Settings"))[0]} == there


def test_every_setting_that_takes_effect_at_once() -> None:
    page = PAGE.read_text(encoding="utf-8")
    sentence = page[page.index("These take effect at once") :].partition("\n## ")[0]
    assert named(sentence) == live_config.LIVE | {apache_key(name) for name in RECONFIGURABLE}


def test_every_key_of_tls() -> None:
    told = tables(section(PAGE, "TLS, access control and name servers"))[0]
    assert {row["key"] for row in told} == tls.KEYS


def test_what_acl_strict_asks_for() -> None:
    told = tables(section(PAGE, "TLS, access control and name servers"))[2]
    there = {
        f"{int(code)} {RequestCode(code).name}": "an admin"
        if right.strict_admin
        else ", ".join(demand.says for demand in right.strict)
        for code, right in sorted(RIGHTS.items())
        if right.strict or right.strict_admin
    }
    assert {row["request"]: row["needs"] for row in told} == there
    assert len(told) == len(there)


def test_who_may_write_to_the_name_server_and_administer() -> None:
    page = section(PAGE, "TLS, access control and name servers")

    def codes(start: str, end: str) -> set[str]:
        return set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", page[page.index(start) :].partition(end)[0]))

    writes = {RequestCode(code).name for code, right in NAMES.rights.items() if right == NAMES_WRITE}
    assert codes("**Name server.**", "Brokers, Apache's") == writes
    local = {RequestCode(code).name for code in BROKER.local | NAMES.local}
    assert codes("**Settings and files.**", "(NO_PERMISSION") == local


def test_every_key_of_replication() -> None:
    base = ha.HaSettings()
    there = {key: shown(getattr(base, name)) for key, name in ha.FIELDS.items()}
    told = tables(section(PAGE, "Replication"))[0]
    assert {row["key"]: row["default"] for row in told} == {**there, "haMasterAddress": ""}
    assert there.keys() | {"haMasterAddress"} == ha.KEYS


def test_every_reason_of_a_rejected_slave() -> None:
    page = section(PAGE, "Who may copy")
    assert [row["reason"] for row in tables(page)[0]] == [one.value for one in Rejection]
    text = " ".join(page.split())
    assert f"at most {LINKS}, {PER_ADDRESS} of one address" in text


def test_every_reason_and_remark() -> None:
    assert {row["reason"]: row["means"] for row in tables(section(PAGE, "Health"))[0]} == health.CODES
    assert {row["remark"].strip("[]") for row in tables(section(PAGE, "Flow control"))[0]} == set(flow.REASONS)


def test_options_are_there(cli: Cli) -> None:
    help_text = cli("serve", "--help").out
    options = {word.split()[0] for word in named(PAGE.read_text(encoding="utf-8")) if word.startswith("--")}
    others = {"--store", "--dry-run", "--broker", "--json"}
    assert options - others <= set(re.findall(r"--[a-z-]+", help_text))
    own = set(re.findall(r"--[a-z-]+", help_text)) - {"--store", "--config", "--json", "--quiet", "--help"}
    assert own <= set(re.findall(r"--[a-z-]+", PAGE.read_text(encoding="utf-8")))


def test_commands_are_there() -> None:
    for row in tables(section(PAGE, "Commands beside it"))[0]:
        for word in named(f"`{row['command']}`") - {"--dry-run", "everything else that changes the store"}:
            assert word in COMMANDS, word
