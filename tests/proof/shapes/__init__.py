"""The shapes of damage: each a function of a scene that damages it and says how; its docstring says what it stands for.

One raises NotHere, before it has changed anything, where a store has no place for it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from tests.proof.scene import NotHere, Scene

from . import config, fields, index, kinds, marks, pages, queues, segments, tails

Shape = Callable[[Scene], str]

__all__ = ["SHAPES", "NotHere", "Shape", "what"]

SHAPES: MappingProxyType[str, Shape] = MappingProxyType(
    {
        **segments.SHAPES,
        **pages.SHAPES,
        **fields.SHAPES,
        **tails.SHAPES,
        **queues.SHAPES,
        **index.SHAPES,
        **marks.SHAPES,
        **config.SHAPES,
        **kinds.SHAPES,
    }
)
"""Every shape by its name, in the order of the tables."""


def what(name: str) -> str:
    """The first line of a shape's description."""
    return (SHAPES[name].__doc__ or "").strip().split("\n")[0].rstrip(".")
