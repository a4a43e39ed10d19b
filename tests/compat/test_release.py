"""What a release has beside its wheel, and the oldest packages that it says it works with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from . import fixtures
from .test_wheel import PATIENT, ROOT, interpreter, wheel

__all__ = ["wheel"]
pytestmark = pytest.mark.interop
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+) --hash=sha256:([0-9a-f]{64})")
_BOUND = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)(;.*)?")


def canonical(name: str) -> str:
    """A package's name as registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.timeout(900)
def test_constraints_and_bill_of_materials(wheel: Path, tmp_path: Path) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json", reason="make setup installs cyclonedx-bom")
    from cyclonedx.schema import SchemaVersion

    made = tmp_path / "dist"
    patient = {**os.environ, **PATIENT}
    release = [sys.executable, str(ROOT / "fixtures" / "release.py"), str(wheel), str(made)]
    subprocess.run(release, check=True, env=patient)
    text = (made / "constraints.txt").read_text()
    pins = [_PIN.fullmatch(line) for line in text.splitlines()]
    assert pins
    assert all(pins)
    assert "://" not in text
    pinned = {canonical(pin[1]): (pin[2], pin[3]) for pin in pins if pin}
    wanted = {canonical(bound[1]) for bound in map(_BOUND.match, PROJECT["dependencies"]) if bound}
    assert wanted <= pinned.keys()
    assert "rstore" not in pinned
    words = ["install", "--dry-run", "--quiet", "--disable-pip-version-check", "--ignore-installed", "--require-hashes"]
    pip = [sys.executable, "-m", "pip", *words, "-r", str(made / "constraints.txt")]
    subprocess.run(pip, check=True, env=patient)

    bill = (made / "sbom.cdx.json").read_text()
    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    content = json.loads(bill)
    assert content["metadata"]["component"]["name"] == "rstore"
    assert content["metadata"]["component"]["version"] == PROJECT["version"]
    assert {
        canonical(one["name"]): (one["version"], one["hashes"][0]["content"]) for one in content["components"]
    } == pinned
    assert not any("externalReferences" in one for one in content["components"])


def test_each_dependency_has_a_lower_bound() -> None:
    every = [*PROJECT["dependencies"], *(one for more in PROJECT["optional-dependencies"].values() for one in more)]
    assert [one for one in every if _BOUND.match(one) is None] == []


@pytest.mark.timeout(900)
def test_the_lower_bounds_work(wheel: Path, tmp_path: Path) -> None:
    """With the oldest of each that pyproject.toml allows, on the oldest Python: a store is recovered and served."""
    place = tmp_path / "venv"
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([interpreter("3.11"), "-m", "venv", str(place)], check=True)
    bounds = [bound for bound in map(_BOUND.match, PROJECT["dependencies"]) if bound]
    oldest = [f"{bound[1]}=={bound[2]}" for bound in bounds]
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(wheel), *oldest], check=True, cwd=tmp_path, env={**clean, **PATIENT})
    store = fixtures.unpack("crashed-small", tmp_path)

    def run(*words: str) -> str:
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path, env=clean)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    rstore = (str(place / "bin" / "rstore"), "--store", str(store))
    run(*rstore, "recover", "--yes")
    assert "Nothing is wrong." in run(*rstore, "check")
    run(*rstore, "verify-crc")
    run(*rstore, "put", "Oldest", "--body", "hello")
    assert "hello" in run(*rstore, "get", "Oldest", "0")
    run(str(place / "bin" / "python"), "-c", _SERVES, str(store))


_SERVES = """
import os, re, signal, subprocess, sys, urllib.request
command = [sys.executable, "-m", "rstore_cli.app", "--store", sys.argv[1], "serve"]
command += ["--port", "0", "--no-names", "--metrics-port", "0"]
served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
for line in served.stdout:
    if found := re.search(r"http://[^ ]*/", line):
        break
with urllib.request.urlopen(found[0] + "health") as answer:
    assert answer.status == 200
with urllib.request.urlopen(found[0] + "metrics") as answer:
    assert b"rstore_" in answer.read()
served.send_signal(signal.SIGTERM)
assert served.wait(60) == 0
"""
