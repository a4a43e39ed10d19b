"""A store's state, findings and plans in one file, for a ticket: JSON, or HTML that needs nothing beside it.

`redacted` takes out what names somebody: topics, groups, hosts and paths become numbers, the same ones everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.client.trace import TRACE_TOPIC
from engine.console.changes.store import plan_json, preview_json
from engine.console.web.render import STATIC, filled
from engine.errors import RStoreError
from engine.format.names import SCHEDULE_TOPIC
from engine.format.topic_rules import HALF_TOPIC, OP_TOPIC, TBW102
from engine.inspect.check.check import check
from engine.inspect.check.doctor import doctor
from engine.inspect.status.log_map import log_map
from engine.inspect.status.status import status
from engine.inspect.store.repairs import repairs
from engine.inspect.store.survey import survey
from engine.repair.recover.change import RecoverChange
from engine.repair.recover.following import mended_by_recovery
from engine.repair.start.plan_start import plan_start

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk

Tick = Callable[[int, int], None]
_HOST = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_NAMED = ("topic", "group")
_OWN = frozenset((SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, TRACE_TOPIC, TBW102))
"""Topics of RocketMQ itself name nobody."""


def report(disk: Disk, config: StoreConfig, conf: str | None = None, progress: Tick | None = None) -> dict[str, Any]:
    """Everything about the store that `config` names: `rstore status`, `doctor`, `check`, `plan-start` and
    `recover --dry-run` as their --json has them, the log's segments and the repairs done.

    A part that can't be told has its error instead: {"error": …}.

    Raises:
        NotAStore, StorageError: there is no store that can be read.
    """
    files = survey(disk, config)
    state = status(disk, config, progress=progress).to_json()
    end = state["commitlog"]["maxOffset"]
    return {
        "status": state,
        "log": _part(lambda: log_map(disk, files, end).to_json()),
        "doctor": _part(lambda: doctor(disk, config, conf).to_json()),
        "check": _part(lambda: check(disk, config, progress=progress, mended=mended_by_recovery(disk)).to_json()),
        "planStart": _part(lambda: plan_start(disk, config, conf=conf, progress=progress).to_json()),
        "recover": _part(lambda: preview_json(RecoverChange(), plan_json, disk, config, progress)),
        "repairs": [one.to_json() for one in repairs(disk, files.root)],
    }


def _part(look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return look()
    except RStoreError as error:
        return {"error": str(error)}


def redacted(document: dict[str, Any]) -> dict[str, Any]:
    """The same report without names of topics and groups, hosts and paths."""
    names: dict[str, str] = {}
    _collect(document, names)
    root = str(document["status"]["store"])
    by_length = sorted(names, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w%-])(?:{'|'.join(map(re.escape, by_length))})(?![\w%-])") if by_length else None
    hosts: dict[str, str] = {}

    def text(value: str) -> str:
        value = value.replace(root, "STORE")
        if pattern is not None:
            value = pattern.sub(lambda match: names[match[0]], value)
        return _HOST.sub(lambda match: hosts.setdefault(match[0], f"host-{len(hosts) + 1}"), value)

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: walk(one) for name, one in value.items()}
        if isinstance(value, list):
            return [walk(one) for one in value]
        return text(value) if isinstance(value, str) else value

    answer: dict[str, Any] = walk(document)
    return answer


def _collect(value: Any, names: dict[str, str]) -> None:
    if isinstance(value, list):
        for one in value:
            _collect(one, names)
    if not isinstance(value, dict):
        return
    for kind in _NAMED:
        name = value.get(kind)
        if isinstance(name, str) and name and name not in names and name not in _OWN:
            names[name] = f"{kind}-{len(names) + 1}"
    for one in value.values():
        _collect(one, names)


def as_html(document: dict[str, Any], language: str = "en") -> str:
    """The report as a page of its own: no script, nothing loaded from anywhere."""
    style = (STATIC / "console.css").read_text(encoding="utf-8")
    return filled("report.html", language, doc=document, style=style, theme="auto")
