"""The name service's key-value pairs, and kvConfig.json. Source: KVConfigManager; remoting.md 2.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.broker.config_file import ConfigFile

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: `broker:queues;broker2:queues` by topic."""


class KvConfig:
    """Values by namespace and key; each change is durable when it returns. For the loop's thread alone."""

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        self._spaces: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """What kvConfig.json says. Raises CannotMend, StorageError."""
        for space, said in (self._file.load().get("configTable") or {}).items():
            self._spaces[space] = {key: str(value) for key, value in said.items()}

    def get(self, space: str, key: str) -> str | None:
        """A value, None for none."""
        return self._spaces.get(space, {}).get(key)

    def space(self, space: str) -> dict[str, str] | None:
        """All of a namespace; None: there never was one of that name."""
        return self._spaces.get(space)

    def put(self, space: str, key: str, value: str) -> None:
        """Set a value. Raises DiskFull, StorageError."""
        self._spaces.setdefault(space, {})[key] = value
        self._save()

    def delete(self, space: str, key: str) -> None:
        """Forget a value, if it is there. Raises DiskFull, StorageError."""
        if self._spaces.get(space, {}).pop(key, None) is not None:
            self._save()

    def _save(self) -> None:
        self._file.save({"configTable": self._spaces})
