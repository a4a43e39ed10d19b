"""engine/README.md draws the house as it is: every room is there, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from engine.log import scan
from tests.docs.markdown import section, tables
from tests.engine.test_layers import LEVELS, ROOMS

ENGINE = Path(scan.__file__).resolve().parents[1]
README = ENGINE / "README.md"


def rooms() -> dict[str, int]:
    """Place → floor, as the table of layers says."""
    return {row["where"]: int(row["floor"]) for row in tables(section(README, "Layers"))[0]}


def test_every_part_of_the_engine_is_drawn() -> None:
    there = {path.name for path in ENGINE.glob("*.py")} | {
        f"{path.parent.name}/" for path in ENGINE.glob("*/__init__.py")
    }
    assert there - {"__init__.py"} == {place for place in rooms() if not place.startswith("..")}


def test_the_floors_are_those_that_the_imports_are_held_to() -> None:
    for place, floor in rooms().items():
        name = place.strip("./").removesuffix(".py")
        assert LEVELS[name if name == "rstore_cli" else f"engine.{name}"] == floor


def test_the_rooms_are_those_that_the_imports_are_held_to() -> None:
    stated = [row["package"] for row in tables(section(README, "Packages of inspect/ and repair/"))[0]]
    assert stated == [
        f"{part.removeprefix('engine.')}/{room}/".replace("//", "/") for part, rooms in ROOMS.items() for room in rooms
    ]


def test_the_rooms_of_the_broker_are_there() -> None:
    stated = {row["package"] for row in tables(section(README, "Packages of broker/"))[0]}
    assert stated == {f"broker/{path.parent.name}/" for path in ENGINE.glob("broker/*/__init__.py")}


def test_the_events_of_the_scanner() -> None:
    stated = {row["event"] for row in tables(section(README, "One scanner"))[0]}
    assert stated == {event.__name__ for event in scan.Event.__args__}


def test_files_that_are_named_are_there() -> None:
    for name in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (ENGINE / name).exists(), name
