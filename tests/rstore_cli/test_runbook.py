"""RUNBOOK.md: every command of every incident does and prints what it says there, on a store in that very state."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import picture, runbook
from tests.docs.runbook import Incident
from tests.docs.runbook_scenes import HOME, SCENES
from tests.rstore_cli.conftest import Cli

INCIDENTS = runbook.incidents()


def test_all_incidents_and_scenes() -> None:
    assert len(INCIDENTS) == 14
    assert [int(incident.title.split(".")[0]) for incident in INCIDENTS] == list(range(1, 15))
    assert {incident.scene for incident in INCIDENTS} == set(SCENES)
    head = runbook.RUNBOOK.read_text(encoding="utf-8").split("\n## ")[0]
    pasted = [line.split(" # ")[0].strip() for line in head.splitlines() if line.startswith("    ")]
    assert pasted == [f"cd /{HOME}", "export RSTORE_STORE=store"]  # what test_an_incident does
    for incident in INCIDENTS:
        assert any(command.line.startswith("rstore ") for command in incident.commands), incident.title


def test_the_picture_shows_the_first_incident() -> None:
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.draw(), "python -m tests.docs.picture draws it"


@pytest.mark.leaves
def test_readme_opens_with_the_first_incident(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands as they are pasted, on the store of the first incident; who pastes them answers the questions."""
    block = (runbook.RUNBOOK.parent / "README.md").read_text(encoding="utf-8").split("![")[0]
    first, *lines = re.findall(r"^    \$ (.+?)(?:\s+# .*)?$", block, flags=re.MULTILINE)
    assert len(block.splitlines()) < 20
    with SCENES["does-not-start"](tmp_path) as stands_for:
        where, store = re.fullmatch(r"cd (\S+) && export RSTORE_STORE=(\w+)", first).groups()
        monkeypatch.chdir(stands_for["/data"] + where.removeprefix("/data"))
        monkeypatch.setenv("RSTORE_STORE", store)
        asks = ("rstore recover --bridge", "rstore undo")
        ran = [run(cli, f"{line} --yes" if line in asks else line) for line in lines]
    assert [code for code, _ in ran] == [1, 0, 4, 1, 0, 0, 0], list(zip(lines, ran, strict=True))
    assert "00000000000000262144  [file-size]" in ran[0][1]
    assert "LOST if a broker starts now: 603 messages" in ran[2][1]
    assert "LOST, 603 messages" in block
    assert "Nothing is wrong." in ran[5][1]


@pytest.mark.leaves
@pytest.mark.parametrize("incident", INCIDENTS, ids=[incident.scene for incident in INCIDENTS])
def test_an_incident(incident: Incident, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SCENES[incident.scene](tmp_path) as stands_for:
        monkeypatch.chdir(tmp_path / HOME)
        monkeypatch.setenv("RSTORE_STORE", "store")
        monkeypatch.setenv("COLUMNS", "100")
        for command in incident.commands:
            line = command.line
            for name, really in stands_for.items():
                line = line.replace(name, really)
            code, output = run(cli, line)
            for name, really in stands_for.items():
                output = output.replace(really, name)
            assert code == command.code, f"$ {command.line}\n{output}"
            assert command.prints(output), f"$ {command.line}\n{output}"


def run(cli: Cli, line: str) -> tuple[int, str]:
    """Exit code and output of a command: rstore's here, another one in a shell."""
    if line.startswith("rstore ") and not set(line) & set("$>|"):
        ran = cli(*shlex.split(line)[1:])
        return ran.code, ran.out + ran.err
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    return done.returncode, done.stdout + done.stderr
