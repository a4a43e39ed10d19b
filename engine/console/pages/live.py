"""What streams look at: the daemon, the brokers of a cluster, a group's lag, a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.client.admin.brokers import broker_lines
from engine.client.admin.groups import group_progress
from engine.client.admin.rows import to_row
from engine.console.pages.store_state import daemon_of
from engine.console.web.sessions import ConsoleRight
from engine.errors import NotFound
from engine.format import names
from engine.inspect.store.survey import read_checkpoint

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.console.web.asked import Asked
    from engine.console.web.streams import Look
    from engine.files.disk import Disk

_DAEMON_S, _CLUSTER_S, _LAG_S, _RUN_S = 1.0, 5.0, 5.0, 0.3


def look_of(asked: Asked, what: str) -> tuple[str, Look, float]:
    """(key, look, seconds between two looks) of a stream's path. Raises NotFound; NotAllowed."""
    kind, _, name = what.partition("/")
    account = "" if asked.session.account is None else asked.session.account.access_key
    match kind:
        case "daemon":
            asked.session.demand(ConsoleRight.FILES)
            return "daemon", lambda: _daemon(asked), _DAEMON_S
        case "brokers":
            return f"brokers {account}", lambda: _brokers(asked), _CLUSTER_S
        case "lag":
            return f"lag {account} {name}", lambda: _lag(asked, name), _LAG_S
        case "run":
            asked.session.demand(ConsoleRight.FILES)
            return f"run {name}", lambda: _run(asked, name), _RUN_S
    raise NotFound(f"there is no stream {what}")


async def _daemon(asked: Asked) -> dict[str, Any]:
    """The daemon's figures, without what grows with topics and groups; with rates of what all of them put and got."""
    state = await daemon_of(asked)
    if state is None:
        return {"error": "no daemon runs on the store"}
    topics = state.get("topics", {}).values()
    point = await asked.read("checkpoint", _checkpoint, fresh_s=0.9)
    behind = {name: (state["time"] - at) / 1000 for name, at in point.items() if at}
    return {
        "checkpointBehind": behind,
        **{name: value for name, value in state.items() if name not in ("topics", "groups")},
        "put": sum(one["putMessages"] for one in topics),
        "got": sum(one["getMessages"] for one in topics),
        "putBytesPerSecond": sum(one["putBytesPerSecond"] for one in topics),
        "getBytesPerSecond": sum(one["getBytesPerSecond"] for one in topics),
        "time": state["time"],
    }


def _checkpoint(disk: Disk, config: StoreConfig) -> dict[str, int]:
    """Store times (ms) of the newest message that is flushed in log, queues and index."""
    point, _ = read_checkpoint(disk, os.path.join(config.store_path_root_dir, names.CHECKPOINT))
    return {
        "log": point.physic_msg_timestamp,
        "queues": point.logics_msg_timestamp,
        "index": point.index_msg_timestamp,
    }


async def _brokers(asked: Asked) -> dict[str, Any]:
    lines = [to_row(one) for one in await broker_lines(await asked.admin())]
    return {
        "in": {f"{one['broker']}/{one['brokerId']}": one["inRate"] for one in lines},
        "out": {f"{one['broker']}/{one['brokerId']}": one["outRate"] for one in lines},
    }


async def _lag(asked: Asked, group: str) -> dict[str, Any]:
    progress = await group_progress(await asked.admin(), group)
    queues = sorted(progress.queues, key=lambda one: -one.lag)
    return {
        "lag": progress.lag,
        "rate": progress.rate,
        "queues": {f"{one.topic} {one.broker}/{one.queue_id}": one.lag for one in queues[:8]},
    }


async def _run(asked: Asked, name: str) -> dict[str, Any]:
    run = asked.console.runs.last.get(name)
    if run is None:
        raise NotFound(f"{name} was not started")
    return run.to_json(whole=False)
