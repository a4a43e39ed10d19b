"""The states of config/ that a daemon kept: listed, and one brought back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import CannotRepair, InvalidArgument
from engine.format import fastjson, names
from engine.inspect.store.config_files import ConfigFileState, as_table, directory_of, read_table
from engine.inspect.store.config_shapes import TABLES, VERSION
from engine.inspect.store.odd import demand_present
from engine.inspect.store.survey import survey, surveyed
from engine.repair.config.apply import Write, write_files
from engine.repair.config.changes import change_text
from engine.repair.config.history import KeptState, every_state, states
from engine.repair.salvage.finish import demand_none_of_store

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """A state that was kept, and what it changed."""

    state: KeptState
    change: str

    def to_json(self) -> dict[str, Any]:
        """One line of `rstore config history`."""
        state = self.state
        return {"file": state.name, "id": state.id, "time": state.time_ms, "bytes": state.size, "change": self.change}


def history(disk: Disk, config: StoreConfig, name: str | None = None) -> list[HistoryLine]:
    """Every state that was kept, newest first. Raises InvalidArgument: no such file; NotAStore, StorageError."""
    root = survey(disk, config).root
    lines = []
    for file in TABLES if name is None else [file_of(name)]:
        kept = states(disk, root, file)
        tables = [as_table(file, state.read(disk)) for state in kept]
        for i, state in enumerate(kept):
            before = tables[i + 1] if i + 1 < len(tables) else None
            lines.append(HistoryLine(state, change_text(before, tables[i])))
    return sorted(lines, key=lambda line: (line.state.time_ms, line.state.name), reverse=True)


def file_of(name: str) -> str:
    """The file of config/ that is meant. Raises InvalidArgument."""
    files = [file for file in TABLES if name in (file, file.removesuffix(".json"), f"{names.CONFIG}/{file}")]
    if not files:
        raise InvalidArgument(f"{name!r} is not a file of config/", hint=", ".join(TABLES))
    return files[0]


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Bringing one state back. `change`: from what the file holds now; `data`: the bytes that it gets."""

    files: StoreFiles
    state: KeptState
    path: str
    change: str
    data: bytes
    changed: bool
    backup: str | None

    def to_json(self, salvage: str | None) -> dict[str, Any]:
        """The JSON of `rstore config restore`."""
        return {
            "store": self.files.root,
            "file": f"{names.CONFIG}/{self.state.name}",
            "id": self.state.id,
            "time": self.state.time_ms,
            "change": self.change,
            "salvage": salvage,
            "changed": self.changed,
        }


def plan_restore(disk: Disk, store: StoreConfig | StoreFiles, name: str, at: str | int) -> RestorePlan:
    """Plan to bring a state back; writes nothing.

    Args:
        disk: how files are reached.
        store: its survey, or the settings that name it.
        name: the file.
        at: a state's id, or ms: the newest state of that time or before.

    Raises:
        InvalidArgument: there is no such state. CannotRepair: a broker can't read it. DataIsAbsent: a disk is not
        mounted. Refused: a repair of the store was killed. NotAStore, StorageError.
    """
    files = surveyed(disk, store)
    demand_present(files.odd)
    demand_none_of_store(disk, files.config)
    name = file_of(name)
    kept = states(disk, files.root, name)
    hint = (
        "rstore config history lists the saved states"
        if every_state(disk, files.root)
        else "rstore serve keeps config history"
    )
    state = next((one for one in kept if (one.id == at if isinstance(at, str) else one.time_ms <= at)), None)
    if state is None:
        raise InvalidArgument(f"no saved state of {name} at {at}", hint=hint)
    table = as_table(name, state.read(disk))
    if not table.loads:
        raise CannotRepair(f"a broker can't read this state: {table.problem}", path=state.path, hint=hint)
    directory = directory_of(files.root)
    now, backup = read_table(disk, directory, name), read_table(disk, directory, name, backup=True)
    changed = now.state is not ConfigFileState.SOUND or _plain(now.text.value) != _plain(table.text.value)
    keeps = "old" if now.loads else None
    if not now.loads and not backup.loads and backup.state is not ConfigFileState.MISSING:
        keeps = "new"
    data = state.data(disk)
    if changed and isinstance(table.text.value, dict) and VERSION in table.text.value:
        data = fastjson.dumps(_newer(disk, table.text.value, now.text.value)).encode("utf-8", "replace")
    change = change_text(now if now.loads else None, table)
    return RestorePlan(files, state, os.path.join(directory, name), change, data, changed, keeps)


def restore(disk: Disk, plan: RestorePlan) -> str:
    """Do it. The caller holds the store's lock. Returns and raises as `write_files`."""
    write = Write(plan.path, plan.data, f"the state of {plan.state.id}", plan.backup)
    return write_files(disk, plan.files.config, plan.files.root, "config-restore", [write])


def _plain(value: Any) -> Any:
    return {key: entry for key, entry in value.items() if key != VERSION} if isinstance(value, dict) else value


def _newer(disk: Disk, value: dict[str, Any], now: Any) -> dict[str, Any]:
    """With a version above both: name servers and slaves would keep what they have."""
    counters, times = [0], [disk.now_ms()]
    for one in (value, now):
        version = one.get(VERSION) if isinstance(one, dict) else None
        if isinstance(version, dict):
            counters += [n for n in (version.get("counter"),) if isinstance(n, int)]
            times += [n + 1 for n in (version.get("timestamp"),) if isinstance(n, int)]
    old = value[VERSION] if isinstance(value[VERSION], dict) else {}
    return {**value, VERSION: {**old, "counter": max(counters) + 1, "timestamp": max(times)}}
