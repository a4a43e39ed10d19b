"""PIPELINE.md says what there is: options and columns of the data source, jobs, exit codes' places."""

from __future__ import annotations

import re
from pathlib import Path

from engine.pipeline import options, schema
from tests.docs.markdown import section, tables

PAGE = Path(options.__file__).with_name("PIPELINE.md")
JOBS = Path(options.__file__).parent / "jobs"


def named(text: str) -> set[str]:
    """Words in code marks."""
    return set(re.findall(r"`([A-Za-z_]+)`", text))


def test_the_options_of_the_data_source() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", section(PAGE, "The data source"), flags=re.MULTILINE)
    assert named(" ".join(rows)) == set(options.NAMES)


def test_the_columns_of_the_data_source() -> None:
    (text,) = re.findall(r"^Columns: (.*?)\.$", section(PAGE, "The data source"), flags=re.MULTILINE | re.DOTALL)
    assert named(text) == set(schema.COLUMNS)


def test_every_job_is_there() -> None:
    told = {row["job"].split()[0].strip("`") for row in tables(section(PAGE, "The jobs"))[0]}
    there = {path.stem.rstrip("_") for path in JOBS.glob("*.py") if "def run(" in path.read_text(encoding="utf-8")}
    assert told == there


def test_places_that_are_named_are_there() -> None:
    for name in re.findall(r"(engine/[a-z_/]+\.py)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parents[2] / name).is_file(), name
