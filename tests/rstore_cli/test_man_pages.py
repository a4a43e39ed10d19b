"""man pages of every command, read by man, mandoc and groff where they are there."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rstore_cli.app import COMMANDS
from rstore_cli.man_pages import EXITS, pages, write
from tests.docs.markdown import section, tables
from tests.rstore_cli.walking import commands

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@functools.cache
def page(name: str) -> str:
    """Its roff. Made in a test, not while tests are collected: it imports every command."""
    return pages("1.2.3")[name]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where they are as they are installed."""
    root = tmp_path_factory.mktemp("man")
    write(root, "1.2.3")
    return root / "share" / "man" / "man1"


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")


def test_every_command_has_its_page_with_every_option() -> None:
    assert set(pages("1.2.3")) == {"rstore.1", *(f"rstore-{name}.1" for name in COMMANDS)}
    for words, command in commands():
        text = page(f"rstore-{words[0]}.1").replace(r"\-", "-")
        assert f"\n.B rstore {' '.join(words)}\n" in text
        for param in command.params:
            for name in param.opts if param.param_type_name == "option" else ():
                assert name in text, (words, name)
    assert all(f"rstore-{name} (1)" in page("rstore.1").replace(r"\-", "-") for name in COMMANDS)


def test_exit_codes_are_those_of_the_readme() -> None:
    stated = {int(row["exit"]) for row in tables(section(ROOT / "README.md", "Exit codes"))[0]}
    assert stated <= EXITS.keys()


def test_what_the_wheel_installs(tmp_path: Path) -> None:
    made = dict(write(tmp_path, "1.2.3"))
    assert len(made["share/man/man1"]) == len(COMMANDS) + 1
    assert sorted(made) == [
        "share/bash-completion/completions",
        "share/fish/vendor_completions.d",
        "share/man/man1",
        "share/zsh/site-functions",
    ]
    assert all(Path(path).is_file() for paths in made.values() for path in paths)
    needed = " ".join(PROJECT["build-system"]["requires"])
    (typer,) = (one for one in PROJECT["project"]["dependencies"] if one.startswith("typer"))
    assert typer in needed  # the pages are made of its parameters


def test_man_shows_them(place: Path) -> None:
    needs("man")
    for name in ("rstore.1", "rstore-salvage.1"):
        ran = subprocess.run(["man", "-l", str(place / name)], capture_output=True, text=True, check=False,
                             env={"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert re.search(r"^NAME$", ran.stdout, flags=re.MULTILINE)
        assert "--store DIR" in ran.stdout
        assert max(map(len, ran.stdout.splitlines())) <= 80


def test_groff_has_no_complaint(place: Path) -> None:
    needs("groff")
    ran = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", *sorted(map(str, place.iterdir()))],
                         capture_output=True, text=True, check=False)  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")


def test_mandoc_has_no_complaint(place: Path) -> None:
    needs("mandoc")
    ran = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *sorted(map(str, place.iterdir()))],
                         capture_output=True, text=True, check=False)  # fmt: skip
    said = [line for line in ran.stdout.splitlines() if "missing date" not in line]  # the same pages from the same code
    assert said == []


def test_they_are_made_where_nothing_but_typer_is_installed(tmp_path: Path) -> None:
    """As when the wheel is built (`requires` of pyproject.toml), or `pip install` builds one."""
    names = [re.split(r"[^\w-]", one)[0] for one in PROJECT["project"]["dependencies"]]
    absent = {name.replace("-", "_") for name in names} - {"typer", "rich"} | {"llvmlite", "pythonjsonlogger"}
    assert {"numpy", "orjson"} <= absent
    run = f"""if True:
        import sys
        from pathlib import Path
        for name in {sorted(absent)!r}:
            sys.modules[name] = None  # an import finds nothing
        from rstore_cli.man_pages import write
        write(Path({str(tmp_path)!r}), "1.2.3")
    """
    ran = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "share" / "man" / "man1" / "rstore-put.1").exists()
