"""The drills that come with rstore: `fixtures/drills/`, which an installed package carries as its own data.

`scripts` beside this module is a link to that directory; a wheel holds the files themselves in its place. So there is
one place where they live, and one way to find them.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path

from engine.drill.read_script import parse_script, read_script
from engine.drill.script import Drill
from engine.errors import InvalidArgument

SUFFIX = ".toml"


@cache
def names() -> tuple[str, ...]:
    """The names of the drills that come with rstore, sorted."""
    directory = resources.files("engine.drill").joinpath("scripts")
    names_there = [entry.name.removesuffix(SUFFIX) for entry in directory.iterdir() if entry.name.endswith(SUFFIX)]
    return tuple(sorted(names_there))


@cache
def shipped(name: str) -> Drill:
    """One of them, read once a process.

    Raises InvalidArgument: there is none of this name, or its file says another.
    """
    if name not in names():
        close = get_close_matches(name, names(), 1)
        raise InvalidArgument(
            f"no drill {name!r}" + (f"; did you mean {close[0]}?" if close else ""),
            hint="rstore drill list lists them; give your own script by its path",
        )
    source = resources.files("engine.drill").joinpath("scripts", name + SUFFIX)
    drill = parse_script(source.read_bytes(), f"{name}{SUFFIX}")
    if drill.name != name:
        raise InvalidArgument(f"name: {drill.name!r} is not the name of the file", path=f"{name}{SUFFIX}")
    return drill


def find(word: str) -> Drill:
    """A drill by its name, or by the path of its script (with a slash, or ending in .toml).

    Raises InvalidArgument, StorageError.
    """
    if "/" in word or word.endswith(SUFFIX):
        return read_script(Path(word))
    return shipped(word)
