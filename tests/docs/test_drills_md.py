"""DRILLS.md has the whole language, as the code has it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

import pytest

from engine.drill import child, crash, script
from engine.drill.read_script import parse_script
from engine.drill.script import STEPS, Expect, Step, StoreSpec
from tests.docs.markdown import section, tables
from tests.docs.test_readme import ROOT

DRILLS = ROOT / "engine" / "drill" / "DRILLS.md"


def keys(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def words(text: str) -> set[str]:
    return {word.strip("` ") for word in text.split(",") if word.strip("` ")}


def test_the_example_is_a_drill() -> None:
    block = [
        line[4:] for line in DRILLS.read_text(encoding="utf-8").splitlines() if line.startswith("    ") or not line
    ]
    start = block.index('name = "queue-directory-lost"')
    end = next(at for at, line in enumerate(block) if line.startswith("expect"))
    drill = parse_script("\n".join(block[start : end + 1]).encode(), "DRILLS.md")
    assert len(drill.steps) == 3


def test_steps_and_their_keys() -> None:
    rows = tables(section(DRILLS, "Steps"))[0]
    assert {row["do"]: words(row["keys"]) for row in rows} == {
        name: keys(kind) - keys(Step) for name, kind in STEPS.items()
    }


def test_the_store() -> None:
    stated = {key for row in tables(section(DRILLS, "The store"))[0] for key in words(row["key"])}
    assert stated == keys(StoreSpec)


def test_damage_and_interruptions() -> None:
    assert {row["damage"] for row in tables(section(DRILLS, "Steps"))[1]} == set(get_args(script.Damage))
    text = section(DRILLS, "Interruptions")
    assert {row["how"] for row in tables(text)[0]} == set(get_args(script.How))
    assert all(f"`{key}`" in text or key == "how" for key in keys(script.Crash))


def test_expectations() -> None:
    rows = tables(section(DRILLS, "Expectations"))[0]
    assert [row["key"] for row in rows] == [field.name for field in dataclasses.fields(Expect)]


def test_modules_are_all_there() -> None:
    named = {name for row in tables(section(DRILLS, "How it runs"))[0] for name in words(row["module"])}
    assert named == {path.name for path in DRILLS.parent.glob("*.py")} - {"__init__.py"}


@pytest.mark.parametrize("pattern", [r"up to (\d+) MiB"])
def test_numbers(pattern: str) -> None:
    (found,) = re.findall(pattern, DRILLS.read_text(encoding="utf-8"))
    assert int(found) << 20 == crash.MODEL_MAX
    assert child.SILENCE_S > 60
    assert Path(child.__file__).is_file()
