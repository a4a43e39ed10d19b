"""Notes how far a replay has come; engine.inspect.dump.replayed has the theory, and reads it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from engine.inspect.store.repairs import REPLAYED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.files.disk import Disk
    from engine.inspect.dump.replayed import Run
    from engine.inspect.dump.saved_log import SavedRepair


def write_runs(disk: Disk, saved: SavedRepair, runs: Sequence[Run]) -> None:
    """Write them, durably. Raises DiskFull, StorageError."""
    text = json.dumps({"version": 1, "runs": [run.to_json() for run in runs]}, indent=1)
    disk.write_file_atomically(os.path.join(saved.directory, REPLAYED), text.encode())
