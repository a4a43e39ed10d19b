"""Answers of the administrator's questions as JSON: what `rstore admin --json` prints and the console shows. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


def to_row(value: Any) -> Any:
    """An answer of the engine as JSON: its fields and properties in camel case."""
    if dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value)]
        names += [name for name, one in vars(type(value)).items() if isinstance(one, property)]
        return {_camel(name): to_row(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(name): to_row(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_row(one) for one in value]
    return value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(one.capitalize() for one in others)
