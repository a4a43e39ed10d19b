"""The operations log: who changed what through the console."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine.console.web.page import Page, Part

if TYPE_CHECKING:
    from engine.console.web.asked import Asked


async def _operations(asked: Asked) -> dict[str, Any]:
    log = asked.console.operations
    path = asked.console.options.operations
    rows = await asyncio.to_thread(log.entries)
    return {"rows": rows, "file": None if path is None else str(path)}


PAGES = (Page("/operations", "Operations log", "operations.html", _operations, Part.BOTH, menu=True),)
