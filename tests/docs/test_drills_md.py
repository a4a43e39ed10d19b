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
from rstore_cli.app import main
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


def worked() -> tuple[str, list[str], list[str]]:
    """The script of the worked example, what it prints, and what it prints of a step that is not as expected."""
    text = section(DRILLS, "A drill of your own")
    code, said = indented(text)[:2]
    failed = [line.strip() for line in text.splitlines() if line.startswith("      ")][-2:]
    return code, said.splitlines(), failed


def test_the_worked_example_runs_and_prints_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, failed = worked()
    path = tmp_path / "orders-disk-full.toml"
    path.write_text(code)

    def run() -> tuple[int, list[str]]:
        capsys.readouterr()
        exit_code = main(["drill", str(path)])
        return exit_code, capsys.readouterr().out.splitlines()

    ended, out = run()
    if ended == 5:
        assert any("not run" in line for line in out)
        pytest.skip("no namespaces here: the drill was not run")
    assert ended == 0, "\n".join(out)
    assert [masked(line) for line in out if line] == [masked(line) for line in said if line]
    assert "refused = true, " in code
    path.write_text(code.replace("refused = true, ", ""))
    ended, out = run()
    assert ended == 1
    assert [line for line in out if line.startswith("orders-disk-full,")] == [failed[0]]
    assert "  5. disk: not reached" in out
    assert any(masked(line.strip()).startswith(masked(failed[1].split(":")[0])) for line in out)


def indented(text: str) -> list[str]:
    """The blocks of code that four blanks make, without them."""
    found = [block for block in re.split(r"^(?! {4}|$).*$", text, flags=re.MULTILINE) if block.strip()]
    return ["\n".join(line[4:] for line in block.strip("\n").splitlines()) + "\n" for block in found]


def masked(line: str) -> str:
    """Without what is another number each time; on a full disk it may be that no put at all fits."""
    plain = re.sub(r"[0-9]+(\.[0-9]+)?", "N", line).replace("message ", "messages ")
    plain = plain.replace("N refused, N messages acknowledged", "N refused")
    return re.sub(r"\s+", " ", plain).strip()


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
