"""The wheel in a clean environment, on each Python that it is for and this machine has: a killed store is recovered."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rstore_cli.app import COMMANDS
from rstore_cli.completion_scripts import SCRIPTS

from . import fixtures

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
PATIENT = {"PIP_RETRIES": "15", "PIP_TIMEOUT": "60"}
"""What pip is to be told: a registry may be slow, or refuse for a moment."""
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def interpreters(version: str) -> Iterator[str]:
    """What may be Python `version` here: on PATH, and what pyenv keeps."""
    for name in (f"python{version}", "python3"):
        if found := shutil.which(name):
            yield found
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False).stdout.strip()
        yield from sorted(str(path) for path in Path(root, "versions").glob(f"{version}.*/bin/python{version}"))


def interpreter(version: str) -> str:
    """A Python `version`; skips without one."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in interpreters(version):
        done = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return path
    pytest.skip(f"no Python {version} on this machine")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as `make dist` makes it, of a copy of what git knows."""
    place = tmp_path_factory.mktemp("wheel")
    copy = place / "source"
    ignore = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "fixtures", "tests")
    shutil.copytree(ROOT, copy, ignore=ignore)
    words = ["wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", str(place), str(copy)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, env={**os.environ, **PATIENT})
    (made,) = place.glob("rstore-*.whl")
    return made


def test_man_pages_and_completions_are_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        inside = {name.partition(".data/data/")[2]: packed.read(name) for name in packed.namelist()}
    for name in ("rstore", *(f"rstore-{command}" for command in COMMANDS)):
        assert inside[f"share/man/man1/{name}.1"].startswith(b".TH"), name
    places = {"bash": "bash-completion/completions/rstore", "zsh": "zsh/site-functions/_rstore"}
    for shell, place in {**places, "fish": "fish/vendor_completions.d/rstore.fish"}.items():
        assert inside[f"share/{place}"].decode() == SCRIPTS[shell]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_environment(version: str, wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    subprocess.run([interpreter(version), "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # By PYTHONPATH pip would take the sources for an installation, and install nothing.
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([*pip, str(wheel)], check=True, cwd=tmp_path, env={**clean, **PATIENT})
    store = fixtures.unpack("crashed-small", tmp_path)

    def rstore(*words: str, code: int = 0) -> str:
        command = [str(place / "bin" / "rstore"), "--store", str(store), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=clean)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    assert "recover" in rstore("--help")
    assert (place / "share" / "man" / "man1" / "rstore-recover.1").exists()
    assert (place / "share" / "bash-completion" / "completions" / "rstore").exists()
    before = json.loads(rstore("recover", "--dry-run", "--json", code=1))
    rstore("recover", "--yes")
    assert before["mode"] == "abnormal"
    assert "Nothing is wrong." in rstore("check")
    rstore("recover", "--dry-run")
