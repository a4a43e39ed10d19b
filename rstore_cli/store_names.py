"""Names of the store on a command line that is still being typed: quick, and silent where there is no store."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import RStoreError

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.inspect.store.known_names import KnownNames

_REPAIR = re.compile(r"\d{8}T\d{6}Z-")


class StoreNames:
    """Topics, groups, queues and repairs. `arguments`: those before the cursor; a topic is the last of them."""

    def __init__(self, store: Path | None, config: Path | None, arguments: Sequence[str]) -> None:
        self._store = store
        self._config = config
        self._arguments = arguments

    @property
    def topics(self) -> list[str]:
        """Every topic that has queues or is configured."""
        known = self._known()
        return [] if known is None else sorted(known.topics)

    @property
    def groups(self) -> list[str]:
        """Every consumer group that config/ or a retry topic names."""
        known = self._known()
        return [] if known is None else sorted(known.groups)

    @property
    def queues(self) -> list[str]:
        """Queue ids of the topic before."""
        known = self._known()
        if known is None or not self._arguments:
            return []
        return [str(queue) for queue in sorted(known.files.get(self._arguments[-1], ()))]

    @property
    def repairs(self) -> list[str]:
        """Ids of the repairs in salvage/, newest first."""
        with contextlib.suppress(RStoreError, OSError):
            place = Path(self._settings().store_path_root_dir) / "salvage"
            return sorted((name for name in os.listdir(place) if _REPAIR.match(name)), reverse=True)
        return []

    def _settings(self) -> StoreConfig:
        from engine.config import of_store

        return of_store(self._store, self._config)

    def _known(self) -> KnownNames | None:
        with contextlib.suppress(RStoreError, OSError):
            from engine.files.disk import Disk
            from engine.inspect.store.known_names import KnownNames

            return KnownNames.of_store(Disk(), self._settings())
        return None
