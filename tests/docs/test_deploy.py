"""fixtures/deploy: each file by its own tool, where that is installed, and against the daemon that it is about."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import aiohttp
import pytest

from engine.broker.ha.slave import LinkStatus
from engine.broker.watch.metrics import METRICS
from tests.engine.broker.client import daemon
from tests.rstore_cli.conftest import Cli, cli
from tests.support.in_memory import tmp_path

__all__ = ["cli", "tmp_path"]

DEPLOY = Path(__file__).parents[2] / "fixtures" / "deploy"
FILES = {"README.md", "rstore.service", "Containerfile", "alerts.yml", "alerts.test.yml", "dashboard.json"}
CLUSTERS = {
    "2m-noslave": {"broker-a", "broker-b"},
    "2m-2s-async": {"broker-a", "broker-a-s", "broker-b", "broker-b-s"},
    "2m-2s-sync": {"broker-a", "broker-a-s", "broker-b", "broker-b-s"},
}
BESIDE = {"instance", "job", "le", "alertstate", "alertname"}
"""Labels that Prometheus gives."""
UNIT = (DEPLOY / "rstore.service").read_text(encoding="utf-8")


def tool(name: str, package: str) -> str:
    """Where a tool is; skips the test where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install {package}).")
    return found


def run(*words: str | Path) -> None:
    done = subprocess.run(words, cwd=DEPLOY, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"^\S+\.service:", done.stderr, re.MULTILINE), done.stderr


def started() -> list[str]:
    """The words of the unit's command."""
    (line,) = re.findall(r"^ExecStart=(.+)$", UNIT, re.MULTILINE)
    return shlex.split(line)


def expressions() -> list[str]:
    """Every expression of the dashboard, Grafana's variables filled in."""
    found = json.loads((DEPLOY / "dashboard.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in found["panels"] for target in panel.get("targets", [])]
    return [one.replace("$__rate_interval", "5m").replace("$instance", ".+") for one in asked]


def metrics_of(text: str) -> set[str]:
    return set(re.findall(r"\brstore_[a-z_]+", text))


def test_the_table_names_every_file() -> None:
    table = (DEPLOY / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in DEPLOY.iterdir() if path.is_file()} == FILES
    first = " ".join(re.findall(r"^\|([^|]+)\|", table, re.MULTILINE))
    assert set(re.findall(r"`([^`]+)`", first)) == FILES - {"README.md"} | {f"{name}/" for name in CLUSTERS}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_line_of_a_clusters_files_is_in_force(cluster: str, cli: Cli) -> None:
    """Both brokers of a pair have one name, and what tells them apart; tests/compat/test_clusters.py starts them."""
    files = {path.stem: path for path in (DEPLOY / cluster).iterdir()}
    assert files.keys() == CLUSTERS[cluster]
    for name, path in files.items():
        found = cli("--json", "doctor", "--conf", path)
        assert found.code == 0
        keys = {one["key"]: one for one in found.json["keys"]}
        assert {one["verdict"] for one in keys.values()} == {"in force"}
        slave = name.endswith("-s")
        master = "SYNC_MASTER" if cluster == "2m-2s-sync" else "ASYNC_MASTER"
        assert keys["brokerName"]["inForce"] == name.removesuffix("-s")
        assert keys["brokerId"]["inForce"] == int(slave)
        assert keys["brokerRole"]["inForce"] == ("SLAVE" if slave else master)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    verify = tool("systemd-analyze", "systemd")
    unit = tmp_path / "rstore.service"
    unit.write_text(UNIT.replace(started()[0], sys.executable))  # it has to be there
    run(verify, "verify", "--man=no", unit)


def test_the_units_command_serves_and_stops(tmp_path: Path) -> None:
    places = {"/var/lib/rstore/store": tmp_path / "store", "/etc/rstore/broker.conf": tmp_path / "broker.conf"}
    places["5557"] = Path("0")
    (tmp_path / "broker.conf").write_text("brokerName=broker-a\nmappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\n")
    words = [str(places.get(word, word)) for word in started()[1:]]
    command = [sys.executable, "-m", "rstore_cli.app", *words, "--port", "0", "--names-port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        assert json.loads(line)["metrics"].startswith("0.0.0.0:")
        (number,) = re.findall(r"^KillSignal=(\w+)$", UNIT, re.MULTILINE)
        process.send_signal(signal.Signals[number])
        assert process.wait(60) == 0


def test_the_container_starts_what_the_unit_starts() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)
    (words,) = re.findall(r"^CMD (.+)$", text, re.MULTILINE)
    said = [word if word != "/store" else "/var/lib/rstore/store" for word in json.loads(entry) + json.loads(words)]
    assert said == [Path(started()[0]).name, *started()[1:]]
    assert "/health" in text
    assert f":{started()[started().index('--metrics-port') + 1]}/" in text


def test_docker_takes_the_containerfile() -> None:
    docker = tool("docker", "docker.io")
    if subprocess.run([docker, "info"], capture_output=True, check=False, timeout=60).returncode:
        pytest.skip("Docker is installed, and its daemon does not run.")
    run(docker, "build", "--check", "-f", "Containerfile", ".")


def test_prometheus_takes_the_alerts_and_they_fire() -> None:
    promtool = tool("promtool", "prometheus")
    run(promtool, "check", "rules", "alerts.yml")
    run(promtool, "test", "rules", "alerts.test.yml")


def test_each_alert_is_tested() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (DEPLOY / "alerts.yml").read_text(encoding="utf-8")))
    tested = (DEPLOY / "alerts.test.yml").read_text(encoding="utf-8")
    assert alerts == set(re.findall(r"\bRstore\w+", tested))


def test_a_held_loop_and_a_faulty_master_are_alerts() -> None:
    text = (DEPLOY / "alerts.yml").read_text(encoding="utf-8")
    rules = dict(re.findall(r"alert: (\w+)\n +expr: (.+)$", text, re.MULTILINE))
    assert "rstore_loop_held_seconds_total" in rules["RstoreLoopHeld"]
    assert rules["RstoreMasterFaulty"] == f'rstore_replication_state{{state="{LinkStatus.FAULTY.value}"}} == 1'


def test_prometheus_takes_the_dashboards_expressions(tmp_path: Path) -> None:
    promtool = tool("promtool", "prometheus")
    rules = [{"record": f"r{i}", "expr": one} for i, one in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    run(promtool, "check", "rules", file)


def test_every_metric_is_one_that_the_daemon_has(tmp_path: Path) -> None:
    async def scraped() -> set[str]:
        async with (
            daemon(tmp_path / "store", metrics_port=0) as found,
            aiohttp.ClientSession() as session,
            session.get(f"http://{found.listening.metrics}/metrics") as answer,
        ):
            text = await answer.text()
        families = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
        histograms = {name + end for name, kind in families if kind == "histogram" for end in ("_bucket", "_sum")}
        return {name for name, _ in families} | histograms

    there = asyncio.run(scraped())
    dashboard = (DEPLOY / "dashboard.json").read_text(encoding="utf-8")
    alerts = (DEPLOY / "alerts.yml").read_text(encoding="utf-8")
    for asked in (metrics_of(dashboard), metrics_of(alerts)):
        assert len(asked) > 8
        assert asked <= there


def test_every_label_is_one_that_a_metric_has() -> None:
    labels = {label for one in METRICS for label in one.labels} | BESIDE
    alerts = re.findall(r"expr: (.+)$", (DEPLOY / "alerts.yml").read_text(encoding="utf-8"), re.MULTILINE)
    asked = set(words_in(r"(?:by|on) \(([^)]*)\)", [*expressions(), *alerts]))
    asked |= {name for one in [*expressions(), *alerts] for name in re.findall(r'(\w+)!?=~?"', one)}
    assert asked <= labels
    assert {"topic", "group", "reason", "part", "slave"} <= asked


def words_in(pattern: str, texts: Iterable[str]) -> Iterable[str]:
    """The words of what a pattern finds in brackets."""
    for text in texts:
        for found in re.findall(pattern, text):
            yield from re.findall(r"\w+", found)
