"""The name service's key-value pairs, and kvConfig.json. Source: KVConfigManager; BROKER.md 1.3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import CannotRepair, RStoreError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from engine.broker.tables.config_file import ConfigFile

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: `broker:queues;broker2:queues` by topic."""
_Spaces = dict[str, dict[str, str]]
_Change = tuple[str, str, str | None]
"""Namespace, key, and the value; None: there is to be none."""


class KvConfig:
    """Values by namespace and key. For the loop's thread alone.

    A change is there when it is durable, which whoever asked for it is told: `done`, with None, or with why nothing has
    changed. The file is written beside the loop, and what comes meanwhile is in its next state, all of it at once.
    """

    def __init__(self, file: ConfigFile, loop: asyncio.AbstractEventLoop) -> None:
        self._file = file
        self._loop = loop
        self._spaces: _Spaces = {}
        self._changes: list[_Change] = []
        self._waiting: list[Callable[[RStoreError | None], None]] = []
        self._coming: _Spaces | None = None

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

    def put(self, space: str, key: str, value: str, done: Callable[[RStoreError | None], None]) -> None:
        """Set a value."""
        self._change((space, key, value), done)

    def delete(self, space: str, key: str, done: Callable[[RStoreError | None], None]) -> None:
        """Forget a value, if it is there."""
        self._change((space, key, None), done)

    def finish(self) -> None:
        """Have what is being written in the file before the end. Raises DiskFull, StorageError."""
        if self._coming is not None:
            self._save(self._coming)

    # --- writing beside the loop ------------------------------------------------------------------------------------

    def _change(self, change: _Change, done: Callable[[RStoreError | None], None]) -> None:
        if not self._changes and self._coming is None:
            self._loop.call_soon(self._begin)  # all that comes with the same bytes of a client is one write
        self._changes.append(change)
        self._waiting.append(done)

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        changes, self._changes = self._changes, []
        coming = self._coming = _changed(self._spaces, changes)

        def write() -> RStoreError | None:
            try:
                if coming != self._spaces:
                    self._save(coming)
            except RStoreError as error:
                return error
            return None

        def written(future: asyncio.Future[RStoreError | None]) -> None:
            error = future.result()
            self._coming = None
            if error is None:
                self._spaces = coming
            if self._changes:
                self._loop.call_soon(self._begin)
            for done in waiting:
                done(error)

        self._loop.run_in_executor(None, write).add_done_callback(written)

    def _save(self, spaces: _Spaces) -> None:
        self._file.save({"configTable": spaces})


def _changed(spaces: _Spaces, changes: Iterable[_Change]) -> _Spaces:
    """Another table, with these changes. A value that is not there is forgotten without a trace."""
    changed = {space: dict(entries) for space, entries in spaces.items()}
    for space, key, value in changes:
        if value is not None:
            changed.setdefault(space, {})[key] = value
        elif key in changed.get(space, {}):
            del changed[space][key]
    return changed
