"""What the rules about a broker's settings look at, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.broker_conf.in_force import STORE, InForce
from engine.broker_conf.values import Value
from engine.dataclass import dataclass

VALUE_ALONE = "write no comment and no blank after the value"
"""What a hint says where a value was misread: both would be part of it. Source: java.util.Properties."""


@dataclass(frozen=True, slots=True)
class Danger:
    """`keys`: that make it, together. `stops`: a broker does not start with it. `note`: the file is as it should be."""

    keys: tuple[str, ...]
    what: str
    hint: str
    stops: bool = False
    note: bool = False

    def to_json(self) -> dict[str, Any]:
        """One line of "dangers"."""
        starts = not self.stops
        return {"keys": list(self.keys), "what": self.what, "hint": self.hint, "starts": starts, "note": self.note}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is in force, what was read before the start overruled some, what is written, and what of it was misread."""

    settings: InForce
    read: InForce
    written: Mapping[str, str]
    misread: Mapping[str, str]

    def text(self, owner: str, key: str) -> str:
        """A value as text; "" for none."""
        value = self.settings[owner, key]
        return "" if value is None else str(value)

    def number(self, owner: str, key: str) -> int:
        """A value that is a number."""
        value = self.settings[owner, key]
        assert isinstance(value, int)
        return value

    def store(self, key: str) -> Value:
        """A value of MessageStoreConfig."""
        return self.settings[STORE, key]
