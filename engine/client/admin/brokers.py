"""Brokers: where they are, how they are, their settings; cleaning that an administrator asks for.

Source: ClusterListSubCommand, BrokerStatusSubCommand, GetBrokerConfigCommand, UpdateBrokerConfigSubCommand,
CleanExpiredCQSubCommand, CleanUnusedTopicCommand, DeleteExpiredCommitLogSubCommand.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from engine.broker_conf.properties import read_properties
from engine.client.admin.plan import AdminPlan, AdminStep
from engine.client.admin.session import LONG_S
from engine.client.admin.settings_text import settings_body
from engine.dataclass import dataclass
from engine.errors import FormatError, PeerLost, RefusedByBroker
from engine.format.numbers import LONG_MAX, LONG_MIN, parse_int
from engine.wire.codes import RequestCode

if TYPE_CHECKING:
    from engine.client.admin.cluster_map import BrokerAt
    from engine.client.admin.session import AdminSession


@dataclass(frozen=True, slots=True)
class BrokerLine:
    """A broker at a glance. Rates in messages a second; `waits_ms`: of the page cache; counts of messages.

    Attributes:
        problem: why it said nothing; None: it did.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str = ""
    in_rate: float = 0.0
    out_rate: float = 0.0
    waits_ms: int = 0
    oldest_ms: int = 0
    disk_used: float = 0.0
    in_yesterday: int = 0
    out_yesterday: int = 0
    in_today: int = 0
    out_today: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerValues:
    """What a broker says of itself, by Apache's names: its state, or its settings."""

    broker: str
    address: str
    values: Mapping[str, str] = field(default_factory=dict)


class Cleaning(enum.Enum):
    """What a broker is told to delete: the request's code."""

    QUEUES = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE
    TOPICS = RequestCode.CLEAN_UNUSED_TOPIC
    LOG = RequestCode.DELETE_EXPIRED_COMMITLOG


_CLEANS = {
    Cleaning.QUEUES: "queue files whose messages are expired are deleted",
    Cleaning.TOPICS: "queues of topics without a configuration are deleted",
    Cleaning.LOG: "expired segments of the log are deleted, as at deleteWhen",
}


async def broker_lines(
    admin: AdminSession, cluster: str | None = None, broker: str | None = None
) -> tuple[BrokerLine, ...]:
    """All brokers of all clusters, or of one; one that does not answer has its `problem`.

    Raises:
        InvalidArgument: no such cluster or broker.
    """
    return tuple(await admin.each((await admin.clusters()).selected(cluster, broker), lambda at: _line(admin, at)))


async def _line(admin: AdminSession, at: BrokerAt) -> BrokerLine:
    try:
        values = await _runtime(admin, at)
    except (PeerLost, RefusedByBroker, FormatError) as error:
        return BrokerLine(at.cluster, at.name, at.broker_id, at.address, problem=error.message)

    def number(name: str) -> int:
        try:
            return parse_int(values.get(name, ""), LONG_MIN, LONG_MAX)
        except ValueError:
            return 0

    return BrokerLine(
        at.cluster,
        at.name,
        at.broker_id,
        at.address,
        values.get("brokerVersionDesc", ""),
        _first(values.get("putTps", "")),
        _first(values.get("getTransferedTps") or values.get("getTransferredTps", "")),  # 4.9, and 5
        number("pageCacheLockTimeMills"),
        number("earliestMessageTimeStamp"),
        _first(values.get("commitLogDiskRatio", "")),
        number("msgPutTotalTodayMorning") - number("msgPutTotalYesterdayMorning"),
        number("msgGetTotalTodayMorning") - number("msgGetTotalYesterdayMorning"),
        number("msgPutTotalTodayNow") - number("msgPutTotalTodayMorning"),
        number("msgGetTotalTodayNow") - number("msgGetTotalTodayMorning"),
    )


def _first(text: str) -> float:
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return 0.0


async def _runtime(admin: AdminSession, at: BrokerAt) -> dict[str, str]:
    return (await admin.json(at.address, RequestCode.GET_BROKER_RUNTIME_INFO)).words("table")


async def broker_status(
    admin: AdminSession, cluster: str | None = None, broker: str | None = None
) -> tuple[BrokerValues, ...]:
    """What each master says of its state. Raises InvalidArgument: no such cluster or broker."""
    masters = (await admin.clusters()).masters(cluster, broker)
    values = await admin.each(masters, lambda at: _runtime(admin, at))
    return tuple(BrokerValues(at.name, at.address, one) for at, one in zip(masters, values, strict=True))


async def broker_settings(
    admin: AdminSession, cluster: str | None = None, broker: str | None = None
) -> tuple[BrokerValues, ...]:
    """The settings of each broker, slaves too. Raises InvalidArgument: no such cluster or broker."""
    brokers = (await admin.clusters()).selected(cluster, broker)
    return tuple(await admin.each(brokers, lambda at: _settings(admin, at)))


async def _settings(admin: AdminSession, at: BrokerAt) -> BrokerValues:
    return BrokerValues(at.name, at.address, await settings_at(admin, at.address))


async def settings_at(admin: AdminSession, address: str) -> dict[str, str]:
    """The settings of one broker, sorted by name."""
    answer = await admin.ask(address, RequestCode.GET_BROKER_CONFIG, timeout_s=LONG_S)
    return dict(sorted(read_properties(bytes(answer.body)).values.items()))


# --- changes ---------------------------------------------------------------------------------------------------------


async def plan_setting(
    admin: AdminSession, key: str, value: str, cluster: str | None = None, broker: str | None = None
) -> AdminPlan:
    """Change a setting of running brokers.

    Raises:
        InvalidArgument: no such cluster or broker, or no setting.
    """
    body = settings_body(key, value)
    masters = (await admin.clusters()).changed(cluster, broker)
    steps, notes = [], []
    for at, settings in zip(masters, await admin.each(masters, lambda at: _settings(admin, at)), strict=True):
        old = settings.values.get(key)
        if old is None:
            notes.append(f"{at} has no setting {key}: it keeps the value without going by it")
        if old != value:
            words = f"{key} {'is made' if old is None else old + ' becomes'} {value}"
            steps.append(AdminStep.at(at, words, RequestCode.UPDATE_BROKER_CONFIG, {}, body))
    return AdminPlan(f"setting {key}", tuple(steps), tuple(notes))


async def plan_cleaning(
    admin: AdminSession, cleaning: Cleaning, cluster: str | None = None, broker: str | None = None
) -> AdminPlan:
    """Have brokers delete what they would delete by themselves later. Raises InvalidArgument: no such cluster, broker.

    What they have deleted they don't tell.
    """
    masters = (await admin.clusters()).changed(cluster, broker)
    steps = [AdminStep.at(at, _CLEANS[cleaning], cleaning.value, {}) for at in masters]
    return AdminPlan(f"clean {cleaning.name.lower()}", tuple(steps))
