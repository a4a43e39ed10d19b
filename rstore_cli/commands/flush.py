"""`rstore flush`: everything that was put becomes durable now, by the store's daemon or without one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

from engine.format.quantities import counted
from rstore_cli._common import OK, settings_of

if TYPE_CHECKING:
    from engine.config import StoreConfig

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def flush(context: typer.Context) -> None:
    """Flush log, queues, checkpoint and offsets to disk.

    A running `rstore serve` does it, and rstore waits for it. Without one rstore syncs the store's files: bytes that a
    killed process wrote may be only in the page cache. A store that is locked by another process is refused (exit code
    3). No byte changes.
    """
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()

    from engine.daemon import WORK_S, DaemonConnection

    answer = DaemonConnection(config.store_path_root_dir).ask("POST", "/flush", wait_s=WORK_S)
    answer = _sync(config) if answer is None else {"by": "daemon", **answer}
    if output.json:
        output.document(answer)
    elif answer["by"] == "daemon":
        output.text(f"The log is on disk up to {answer['flushed']}, queues up to {answer['dispatched']}.")
        if not answer["complete"]:
            output.warn("Queues are not yet up to date with the log.")
    else:
        output.text(f"No daemon runs on the store: {counted(answer['files'], 'file was', 'files were')} synced.")
    raise typer.Exit(OK)


def _sync(config: StoreConfig) -> dict[str, Any]:
    """Sync every file of a closed store. Raises StoreLocked, NotAStore, StorageError."""
    from engine.files.disk import Disk
    from engine.files.lock import StoreLock
    from engine.inspect.store.survey import demand_store, survey
    from engine.repair.reach import beneath
    from engine.repair.sync import sync_store

    root = os.fspath(config.store_path_root_dir)
    demand_store(Disk(), config, root)  # no store, no lock file
    disk = beneath(Disk(), config)
    with StoreLock(disk, root):
        return {"by": "sync", "files": sync_store(disk, survey(disk, config))}
