"""CONTRIBUTING.md leads somewhere: each path, make target, command and option is there, each recipe is whole."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.files.operations import Operation
from rstore_cli.app import COMMANDS, command_of
from tests.docs.markdown import section, tables
from tests.docs.test_readme import ROOT, targets
from tests.engine.test_layers import LEVELS

PAGE = ROOT / "CONTRIBUTING.md"
MOST = 8
"""Files of a recipe, with its test."""
PLACES = {"build", "DIR"}
"""Where a command writes, and what a reader fills in."""
PYTHON = ".venv/bin/python"
RECIPES = re.findall(r"^### (\d+\. .*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
_PATH = re.compile(r"(?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:md|toml|py)|Makefile")


def commands(text: str) -> list[str]:
    """The lines of the indented blocks that are commands, without what they say to a reader."""
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    plain = [re.sub(r"\s+# .*$", "", line) for line in lines]
    return [line for line in plain if re.match(r"(?:[A-Z_]+=\S+ )?(?:make|git|\.venv/)", line)]


def is_there(path: str) -> bool:
    """Whether it is in the repository; of a new file (NAME), whether there are others like it."""
    if path.partition("/")[0] in PLACES or path.startswith(".venv"):
        return True
    return any(ROOT.glob(path.rstrip("/").replace("NAME", "*")))


def paths(text: str) -> list[str]:
    """What is marked as code and looks like a path; a bare name of a module stands beside the file of its row."""
    marked = [word for word in re.findall(r"`([^`\n]+)`", text) if _PATH.fullmatch(word)]
    return [word for word in marked if "/" in word or not word.endswith(".py")]


@functools.cache
def help_of(program: tuple[str, ...]) -> str | None:
    """What a program says of itself; None: it does not take these words."""
    ran = subprocess.run([*program, "--help"], capture_output=True, text=True, check=False, cwd=ROOT)
    return ran.stdout if ran.returncode == 0 else None


def program_of(words: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The program that a command line runs, and its arguments."""
    if words[0] == PYTHON and words[1] == "-m":
        return (sys.executable, "-m", words[2]), words[3:]
    assert words[0] == ".venv/bin/rstore", words
    rest = words[3:] if words[1] == "--store" else words[1:]
    number = 2 if rest[0] in COMMANDS and hasattr(command_of(rest[0]), "commands") else 1
    return (sys.executable, "-m", "rstore_cli.app", *rest[:number]), rest[number:]


def problem(line: str) -> str | None:
    """Why a command line is wrong; None when it isn't."""
    words = shlex.split(line)
    if re.fullmatch(r"[A-Z_]+=\S+", words[0]):
        name = words.pop(0).partition("=")[0]
        if not any(name in path.read_text("utf-8") for tree in ("rstore_cli", "tests") for path in py_files(tree)):
            return f"{name}: nobody reads it"
    if words[0] == "make":
        return next((f"make {one}: no such target" for one in words[1:] if one not in targets()), None)
    if words[:2] == [PYTHON, "-c"]:
        return imported(words[2])
    arguments = words[1:]
    if words[0] != "git":
        program, arguments = program_of(words)
        said = help_of(program)
        if said is None:
            return f"{line}: not taken"
        for word in arguments:
            if re.match(r"--?[a-z]", word) and not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", said):
                return f"{word}: no such option"
    gone = [word for word in arguments if "/" in word and not word.startswith("-") and not is_there(word)]
    return f"{gone[0]}: not there" if gone else None


def imported(code: str) -> str | None:
    """Whether all that a line of Python imports is there."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = __import__(str(node.module), fromlist=[one.name for one in node.names])
            for one in node.names:
                if not hasattr(module, one.name):
                    return f"{node.module}.{one.name}: not there"
    return None


def py_files(tree: str) -> Iterator[Path]:
    return (path for path in (ROOT / tree).rglob("*.py") if path != Path(__file__))


def files_of(recipe: str) -> list[str]:
    """The files of a recipe's table, and its test."""
    text = section(PAGE, recipe)
    (steps,) = tables(text)
    assert all(row["what is done"] for row in steps)
    (test,) = re.findall(r"^Test first: `([^`]+)`", text, flags=re.MULTILINE)
    return [*(row["file"] for row in steps), test]


def test_every_path_is_there() -> None:
    named = paths(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 60
    assert [path for path in named if not is_there(path)] == []


@pytest.mark.parametrize("line", sorted(set(commands(PAGE.read_text(encoding="utf-8")))))
def test_every_command_is_taken(line: str) -> None:
    assert problem(line) is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("make tests", "make tests: no such target"),
        ("make lint typing", "make typing: no such target"),
        (".venv/bin/rstore --store DIR chek", ".venv/bin/rstore --store DIR chek: not taken"),
        (".venv/bin/rstore --store DIR check --whole", "--whole: no such option"),
        (f"{PYTHON} -m pytest -q -n 0 tests/engine/test_nothing.py", "tests/engine/test_nothing.py: not there"),
        (f"{PYTHON} -m tests.fuzz --input 5", "--input: no such option"),
        (f'{PYTHON} -c "from tests.fuzz.targets import goals"', "tests.fuzz.targets.goals: not there"),
        ("RSTORE_NO" + f"THING=1 {PYTHON} -m pytest tests", "RSTORE_NO" + "THING: nobody reads it"),
        ("git diff tests/rstore_cli/windows", "tests/rstore_cli/windows: not there"),
    ],
)
def test_what_leads_nowhere_is_found(line: str, why: str) -> None:
    assert problem(line) == why


def test_a_path_that_is_gone_is_found() -> None:
    text = "`engine/nowhere/NAME.py`, `engine/log/kernels/NAME.py`, `engine/store.py`, `nowhere.toml`, `index.py`"
    assert [path for path in paths(text) if not is_there(path)] == ["engine/nowhere/NAME.py", "nowhere.toml"]


def test_there_are_ten_recipes() -> None:
    assert [int(title.split(".")[0]) for title in RECIPES] == list(range(1, 11))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_whole(recipe: str) -> None:
    """Its files, few; its test, which is one; what to run, with that test or its directory among it."""
    files = files_of(recipe)
    assert 3 <= len(set(files)) <= MOST
    assert all(is_there(path) for path in files), files
    test = files[-1]
    assert test.startswith("tests/")
    run = [word for line in commands(section(PAGE, recipe)) for word in line.split() if word.startswith("tests/")]
    assert any(test == word or test.startswith(f"{word}/") for word in run) or "NAME" in test


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_module_beside_another_is_there(recipe: str) -> None:
    """A bare name in a row (`log.py`) is a module beside the row's file."""
    for row in tables(section(PAGE, recipe), marks=True)[0]:
        place = (ROOT / row["`file`" if "`file`" in row else "file"].strip("`")).parent
        for name in re.findall(r"`([a-z_]+\.py)`", row["what is done"]):
            assert (place / name).is_file(), name


def test_the_layers_are_those_that_imports_are_held_to() -> None:
    stated = {
        place: int(row["floor"])
        for row in tables(section(PAGE, "The layers"))[0]
        for place in re.findall(r"[\w/.]+", row["where"])
    }
    places = {name: name.replace(".", "/") for name in LEVELS if name != "engine"}
    assert stated == {
        f"{place}.py" if (ROOT / f"{place}.py").is_file() else f"{place}/": LEVELS[name]
        for name, place in places.items()
    }


def test_names_of_the_example_of_a_fault() -> None:
    text = section(PAGE, "How to debug")
    for name in re.findall(r"Operation\.([A-Z_]+)", text):
        assert name in Operation.__members__
    steps = set(re.findall(r'"([a-z]+\.[a-z-]+)"', text))
    sources = "".join(path.read_text("utf-8") for path in py_files("engine"))
    assert steps
    assert all(f'step("{step}")' in sources for step in steps)
    faults = (ROOT / "engine" / "files" / "faults.py").read_text("utf-8")
    assert all(f"def {name}(" in faults for name in re.findall(r"disk\.(\w+)\(", text) if name != "step")
