"""The shapes of damage: each a function of a scene that damages it and says how; its docstring says what it stands for.

One raises NotHere, before it has changed anything, where a store has no place for it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from tests.proof.scene import NotHere, Scene

from . import config, fields, index, kinds, marks, newer, pages, queues, segments, tails

Shape = Callable[[Scene], str]

__all__ = ["EVERY", "NEWER", "SHAPES", "NotHere", "Shape", "what"]

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
"""Those that a store of 4.9.8 can have, by name, in the order of the tables."""
NEWER: MappingProxyType[str, Shape] = MappingProxyType(newer.SHAPES)
"""Those of parts that only RocketMQ 5 has."""
EVERY: MappingProxyType[str, Shape] = MappingProxyType({**SHAPES, **NEWER})

ONLY_OLD = frozenset({"torn-snapshot", "nested-record"})
"""Those for which the bases of RocketMQ 5 have nothing: copies of earlier moments, records in records."""


def what(name: str) -> str:
    """The first line of a shape's description."""
    return (EVERY[name].__doc__ or "").strip().split("\n")[0].rstrip(".")
