"""The state of a store, its space, its configuration and drills."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any

from engine.console.web.asked import Asked
from engine.console.web.page import Page, Part
from engine.console.web.sessions import ConsoleRight
from engine.daemon import DaemonConnection
from engine.errors import RStoreError
from engine.inspect.check.doctor import doctor
from engine.inspect.dump.dump import dump_config
from engine.inspect.status.status import status
from engine.repair.config.consumer_offsets import list_offsets
from engine.repair.config.restore import history

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.console.web.context import Console
    from engine.files.disk import Disk

FRESH_S, STALE_S = 2.0, 600.0
"""A state is asked for anew after so long; one up to so old is shown meanwhile."""
_DAEMON_S = 2.0
ROWS = 200
HIDDEN = "(hidden)"
SECRET = re.compile(r"password|passwd|secret|token", re.IGNORECASE)


async def state_of(asked: Asked, hours: int = 24) -> dict[str, Any]:
    """What `rstore status --json` prints; `daemon` is what a running daemon says, or None."""

    def look(disk: Disk, config: StoreConfig) -> dict[str, Any]:
        return status(disk, config, hours=hours).to_json()

    state, daemon = await asyncio.gather(
        asked.read(("status", hours), look, fresh_s=FRESH_S, stale_s=STALE_S), daemon_of(asked)
    )
    return {**state, "daemon": daemon}


async def prefetch(console: Console) -> None:
    """Read what the first page shows, before anybody asks; what is wrong with it, that page says."""
    if console.options.store is None:
        return
    asked = Asked(console, console.sessions.nobody(), {})
    with contextlib.suppress(RStoreError):
        await asked.files()
        await state_of(asked)


async def daemon_of(asked: Asked) -> dict[str, Any] | None:
    """What the store's daemon says of itself; None: there is none, or it does not say."""

    def ask(_: Disk, config: StoreConfig) -> dict[str, Any] | None:
        try:
            answer = DaemonConnection(config.store_path_root_dir).ask("GET", "/status", wait_s=_DAEMON_S)
        except RStoreError:  # another user's, or it hangs: the files say enough
            return None
        return answer if isinstance(answer, dict) else None

    return await asked.read("daemon", ask, fresh_s=0.9)


async def _state(asked: Asked) -> dict[str, Any]:
    return await state_of(asked)


async def _space(asked: Asked) -> dict[str, Any]:
    return await state_of(asked, asked.number("hours", 24, 1, 24 * 31))


async def _config(asked: Asked) -> dict[str, Any]:
    """What `rstore doctor --json` prints, beside the tables of config/ and their history."""
    conf = asked.console.options.conf

    def look(disk: Disk, config: StoreConfig) -> dict[str, Any]:
        judged = doctor(disk, config, None if conf is None else str(conf)).to_json()
        files = [one.to_json() for one in dump_config(disk, config)]
        return {**judged, "files": files, "history": [one.to_json() for one in history(disk, config, None)][:ROWS]}

    document = await asked.read("doctor", look, fresh_s=5.0, stale_s=STALE_S)
    name = asked.text("file")
    return {
        **document,
        "configuration": _without_secrets(document["configuration"]),
        "shown": next((one for one in document["files"] if one.get("file") == name), None),
    }


def _without_secrets(configuration: dict[str, Any] | None) -> dict[str, Any] | None:
    """Values of keys that name a password or a secret stand in no page."""
    if configuration is None:
        return None
    keys = [
        {**one, "written": HIDDEN, "inForce": None if one["inForce"] is None else HIDDEN}
        if SECRET.search(str(one["key"]))
        else one
        for one in configuration["keys"]
    ]
    return {**configuration, "keys": keys}


async def _offsets(asked: Asked) -> dict[str, Any]:
    """What `rstore offsets list --json` prints, line by line."""
    group, topic = asked.text("group") or None, asked.text("topic") or None

    def look(disk: Disk, config: StoreConfig) -> dict[str, Any]:
        offsets, problems = list_offsets(disk, config, group=group, topic=topic)
        return {"rows": [one.to_json() for one in offsets], "problems": list(problems)}

    return await asked.read(("offsets", group, topic), look, fresh_s=FRESH_S, stale_s=STALE_S)


async def _drills(asked: Asked) -> dict[str, Any]:
    """What `rstore drill list --json` prints, and the report of the last run."""
    from engine.drill import library

    drills = [library.shipped(name) for name in library.names()]
    run = asked.console.runs.last.get("drill")
    return {
        "drills": [{"name": one.name, "purpose": one.purpose} for one in drills],
        "run": None if run is None else run.to_json(),
    }


_FILES = ConsoleRight.FILES
PAGES = (
    Page("/store", "State", "store_state.html", _state, Part.STORE, _FILES, menu=True),
    Page("/store/space", "Space", "store_space.html", _space, Part.STORE, _FILES, menu=True),
    Page("/store/offsets", "Consumer offsets", "store_offsets.html", _offsets, Part.STORE, _FILES, menu=True),
    Page("/store/config", "Configuration", "store_config.html", _config, Part.STORE, _FILES, menu=True),
    Page("/store/drills", "Drills", "store_drills.html", _drills, Part.STORE, _FILES, menu=True),
)
