"""Name servers: their settings, their key-value entries, and the write permission of brokers in their routes.

Each name server keeps its own: changes go to all of them. Source: UpdateKvConfigCommand, UpdateOrderConfCommand,
GetNamesrvConfigCommand, WipeWritePermSubCommand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from engine.broker_conf.properties import read_properties
from engine.client.admin.plan import AdminPlan, AdminStep
from engine.client.admin.session import json_of
from engine.client.admin.settings_text import settings_body
from engine.dataclass import dataclass
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from engine.client.admin.session import AdminSession

ORDER_SPACE = "ORDER_TOPIC_CONFIG"
"""Entries that tell clients the queues of ordered topics. Source: NamesrvUtil#NAMESPACE_ORDER_TOPIC_CONFIG."""


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """Settings of one name server. `address`: `host:port`."""

    address: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """A key-value entry of a name server. `address`: `host:port`."""

    address: str
    namespace: str
    key: str
    value: str


async def name_server_configs(admin: AdminSession) -> tuple[NameServerConfig, ...]:
    """The settings of each name server."""
    rows = []
    for address in admin.name_servers:
        answer = await admin.ask(address, RequestCode.GET_NAMESRV_CONFIG)
        rows.append(NameServerConfig(address, dict(sorted(read_properties(bytes(answer.body)).values.items()))))
    return tuple(rows)


async def plan_name_server_setting(admin: AdminSession, key: str, value: str) -> AdminPlan:
    """Change a setting of all name servers."""
    steps = [
        AdminStep.at_names(
            one.address,
            f"{key} {one.settings.get(key, 'of its default')} becomes {value}",
            RequestCode.UPDATE_NAMESRV_CONFIG,
            {},
            settings_body(key, value),
        )
        for one in await name_server_configs(admin)
        if one.settings.get(key) != value
    ]
    return AdminPlan(f"setting {key} of the name servers", tuple(steps))


async def entry(admin: AdminSession, address: str, space: str, key: str) -> str | None:
    """The value of an entry at one name server; None: there is none."""
    answer = await admin.ask(
        address, RequestCode.GET_KV_CONFIG, {"namespace": space, "key": key}, also=ResponseCode.QUERY_NOT_FOUND
    )
    return answer.fields.get("value") if answer.code == ResponseCode.SUCCESS else None


async def entries_at(admin: AdminSession, space: str, key: str) -> tuple[KeptEntry, ...]:
    """The entry at each name server that has it."""
    rows = [(address, await entry(admin, address, space, key)) for address in admin.name_servers]
    return tuple(KeptEntry(address, space, key, value) for address, value in rows if value is not None)


async def entries_of(admin: AdminSession, space: str) -> tuple[KeptEntry, ...]:
    """All entries of a namespace, by name server and key."""
    rows: list[KeptEntry] = []
    for address in admin.name_servers:
        answer = await admin.ask(
            address, RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": space}, also=ResponseCode.QUERY_NOT_FOUND
        )
        if answer.code == ResponseCode.SUCCESS:
            table = json_of(answer, address, RequestCode.GET_KVLIST_BY_NAMESPACE).words("table")
            rows += [KeptEntry(address, space, key, value) for key, value in table.items()]
    return tuple(rows)


async def put_entry(
    admin: AdminSession, space: str, key: str, wanted: str | Callable[[str | None], str], *, follows: bool = False
) -> list[AdminStep]:
    """The steps that set an entry at each name server that has another value. `wanted`: it, or how it is made of the
    old one."""
    steps = []
    for address in admin.name_servers:
        old = await entry(admin, address, space, key)
        value = wanted if isinstance(wanted, str) else wanted(old)
        if old != value:
            steps.append(
                AdminStep.at_names(
                    address,
                    f"entry {key} of {space} {'is made' if old is None else old + ' becomes'}: {value}",
                    RequestCode.PUT_KV_CONFIG,
                    {"namespace": space, "key": key, "value": value},
                    follows=follows,
                )
            )
    return steps


async def delete_entry(admin: AdminSession, space: str, key: str, *, follows: bool = False) -> list[AdminStep]:
    """The steps that delete an entry at each name server that has it."""
    fields = {"namespace": space, "key": key}
    steps = []
    for address in admin.name_servers:
        old = await entry(admin, address, space, key)
        if old is not None:
            words = f"entry {key} of {space} ({old}) is deleted"
            steps.append(AdminStep.at_names(address, words, RequestCode.DELETE_KV_CONFIG, fields, follows=follows))
    return steps


async def plan_entry(admin: AdminSession, space: str, key: str, value: str | None) -> AdminPlan:
    """Set an entry, or delete it (None)."""
    steps = await (delete_entry(admin, space, key) if value is None else put_entry(admin, space, key, value))
    return AdminPlan(f"entry {key} of {space}", tuple(steps))


async def plan_write_permission(admin: AdminSession, broker: str, *, may_write: bool) -> AdminPlan:
    """Take producers away from a broker name in all routes of the name servers, or let them come back.

    The broker's own topics are not changed. Raises InvalidArgument: no such broker.
    """
    (at, *_) = (await admin.clusters()).selected(broker=broker)
    code = RequestCode.ADD_WRITE_PERM_OF_BROKER if may_write else RequestCode.WIPE_WRITE_PERM_OF_BROKER
    words = f"{at.name} {'gets' if may_write else 'loses'} the write permission in the routes of its topics"
    steps = [AdminStep.at_names(address, words, code, {"brokerName": at.name}) for address in admin.name_servers]
    return AdminPlan(f"write permission of broker {at.name}", tuple(steps))
