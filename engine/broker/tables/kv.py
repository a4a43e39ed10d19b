"""The name service's key-value pairs, and kvConfig.json. Source: KVConfigManager; BROKER.md 1.3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import CannotRepair

if TYPE_CHECKING:
    from engine.broker.tables.config_file import ConfigFile

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: `broker:queues;broker2:queues` by topic."""


class KvConfig:
    """Values by namespace and key; each change is durable when it returns. For the loop's thread alone."""

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self._spaces: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """What kvConfig.json says. Raises CannotRepair, StorageError."""
        for space, entries in (self._file.load().get("configTable") or {}).items():
            if not isinstance(entries, dict):
                raise CannotRepair(f"{space}: not a JSON object", path=self._file.path)
            self._spaces[space] = {key: str(value) for key, value in entries.items()}

    def get(self, space: str, key: str) -> str | None:
        """A value, None for none."""
        return self._spaces.get(space, {}).get(key)

    def space(self, space: str) -> dict[str, str] | None:
        """All of a namespace; None: there never was one of that name."""
        return self._spaces.get(space)

    def put(self, space: str, key: str, value: str) -> None:
        """Set a value. Raises DiskFull, StorageError: nothing has changed."""
        self._change(space, {**self._spaces.get(space, {}), key: value})

    def delete(self, space: str, key: str) -> None:
        """Forget a value, if it is there. Raises DiskFull, StorageError: nothing has changed."""
        entries = self._spaces.get(space, {})
        if key in entries:
            self._change(space, {name: value for name, value in entries.items() if name != key})

    def _change(self, space: str, values: dict[str, str]) -> None:
        spaces = {**self._spaces, space: values}
        self._file.save({"configTable": spaces})
        self._spaces = spaces
