"""What is wrong with a store and what would repair it: checks, Apache's start beside recovery, repairs done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.console.changes.store import plan_json, preview_json, recover_change
from engine.console.pages.store_state import FRESH_S
from engine.console.web.page import Page, Part
from engine.console.web.sessions import ConsoleRight
from engine.errors import InvalidArgument
from engine.inspect.check.check import check
from engine.inspect.check.verify import verify
from engine.inspect.dump.salvage_list import describe
from engine.inspect.store.repairs import repairs
from engine.repair.recover.following import mended_by_recovery
from engine.repair.start.plan_start import plan_start

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.console.web.asked import Asked
    from engine.console.web.runs import Tick, Work
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

RUN_NAMES = ("check", "verify-crc", "plan-start", "recover", "recover --bridge", "recover --cut")


def run_of(asked: Asked, name: str) -> Work:
    """What the run of that name does. Raises InvalidArgument: there is none."""
    asked.session.demand(ConsoleRight.FILES)
    disk, config = asked.console.disk, asked.config
    makers: dict[str, Callable[[Tick], dict[str, Any]]] = {
        "check": lambda tick: _check(disk, config, tick),
        "verify-crc": lambda tick: verify(disk, config, progress=tick).to_json(),
        "plan-start": lambda tick: _plan_start(asked, disk, config, tick),
    }
    if name.startswith("recover") and name in RUN_NAMES:
        how = name.partition("--")[2]
        change = recover_change(replace(asked, fields={"how": how}))
        return lambda tick: preview_json(change, plan_json, disk, config, tick)
    if name == "drill":
        asked.session.demand(ConsoleRight.CHANGE)
        drill = asked.needed("drill")
        return lambda tick: _drill(drill, tick)
    if name not in makers:
        raise InvalidArgument(f"there is no run {name}", hint=", ".join(RUN_NAMES))
    return makers[name]


def _check(disk: Disk, config: StoreConfig, tick: Tick) -> dict[str, Any]:
    return check(disk, config, progress=tick, mended=mended_by_recovery(disk)).to_json()


def _plan_start(asked: Asked, disk: Disk, config: StoreConfig, tick: Tick) -> dict[str, Any]:
    conf = asked.console.options.conf
    plan = plan_start(disk, config, conf=None if conf is None else str(conf), progress=tick)
    refusal = plan.refusal
    return {
        **plan.to_json(),
        "refusal": None if refusal is None else {"message": refusal.message, "hint": refusal.hint},
    }


def _drill(name: str, tick: Tick) -> dict[str, Any]:
    from engine.drill import library
    from engine.drill.apart import run_drills

    del tick
    return run_drills([library.shipped(name)]).to_json()


async def _checks(asked: Asked) -> dict[str, Any]:
    """The last `rstore check --json` and `rstore verify-crc --json`, where somebody has started them."""
    return _runs(asked, ("check", "verify-crc"))


async def _repair(asked: Asked) -> dict[str, Any]:
    """`rstore plan-start --json` beside `rstore recover --dry-run --json`; and the repairs of `rstore undo --list`."""

    def look(disk: Disk, files: StoreFiles) -> list[dict[str, Any]]:
        return [one.to_json() for one in reversed(repairs(disk, files.root))]

    done = await asked.look("repairs", look, fresh_s=FRESH_S)
    return {**_runs(asked, RUN_NAMES[2:]), "repairs": done}


async def _saved(asked: Asked) -> dict[str, Any]:
    """What `rstore salvage show --json` prints."""
    name = asked.needed("id")
    return await asked.read(("salvage", name), lambda disk, config: describe(disk, config, name).to_json(), fresh_s=5.0)


def _runs(asked: Asked, names: tuple[str, ...]) -> dict[str, Any]:
    last = asked.console.runs.last
    current = asked.console.runs.current
    return {
        "runs": {name: last[name].to_json() if name in last else None for name in names},
        "running": None if current is None else current.name,
    }


_FILES = ConsoleRight.FILES
PAGES = (
    Page("/store/check", "Check", "store_check.html", _checks, Part.STORE, _FILES, menu=True),
    Page("/store/repair", "Repair", "store_repair.html", _repair, Part.STORE, _FILES, menu=True),
    Page(
        "/store/repair/{id}",
        "Repair",
        "store_saved.html",
        _saved,
        Part.STORE,
        _FILES,
        under="/store/repair",
    ),
)
