"""Brokers of a cluster, their figures and settings, the clients that are connected, accounts. As `rstore admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.client.admin.accounts import acl_versions
from engine.client.admin.brokers import broker_lines, broker_settings, broker_status
from engine.client.admin.members import consumer_states, list_producers
from engine.client.admin.rows import to_row
from engine.client.admin.topics import list_topics
from engine.console.pages.store_state import HIDDEN, SECRET
from engine.console.web.page import Page, Part
from engine.errors import RStoreError, StorageError

if TYPE_CHECKING:
    from engine.console.web.asked import Asked

ROWS = 200


async def _cluster(asked: Asked) -> dict[str, Any]:
    """What `rstore admin cluster list --json` prints."""
    admin = await asked.admin()
    lines = [to_row(one) for one in await broker_lines(admin)]
    topics = await list_topics(admin)
    return {"rows": lines, "topics": len(topics), "groups": len(await admin.groups())}


async def _broker(asked: Asked) -> dict[str, Any]:
    """What `rstore admin broker status --json` and `admin broker config --json` print of one broker."""
    admin, address = await asked.admin(), asked.needed("address")
    (state,) = await broker_status(admin, broker=address)
    try:
        (settings,) = await broker_settings(admin, broker=address)
        values, problem = _without_secrets(settings.values), None
    except RStoreError as error:  # an account that may not see them
        values, problem = {}, error.message
    return {"status": to_row(state), "settings": values, "problem": problem}


def _without_secrets(values: Any) -> dict[str, str]:
    return {name: HIDDEN if SECRET.search(name) and value else value for name, value in values.items()}


async def _clients(asked: Asked) -> dict[str, Any]:
    """What `rstore admin producer list --json` prints; consumers are found by their groups."""
    rows = [to_row(one) for one in await list_producers(await asked.admin())]
    return {"rows": rows[:ROWS], "all": len(rows)}


async def _consumer(asked: Asked) -> dict[str, Any]:
    """What `rstore admin consumer status --json` prints of one consumer; its stack where it is asked for."""
    group, client = asked.needed("group"), asked.needed("client")
    (state,) = await consumer_states(await asked.admin(), group, client, stack=asked.is_on("stack"))
    row: dict[str, Any] = to_row(state)
    row["properties"] = _without_secrets(row["properties"])
    return row


async def _acl(asked: Asked) -> dict[str, Any]:
    """What `rstore admin acl version --json` prints; `problem`: why a broker did not say."""
    admin = await asked.admin()
    try:
        return {"rows": [to_row(one) for one in await acl_versions(admin)], "problem": None}
    except StorageError as error:  # brokers without an ACL refuse, or hang up
        return {"rows": [], "problem": error.message}


PAGES = (
    Page("/cluster", "Cluster", "cluster.html", _cluster, Part.CLUSTER, menu=True),
    Page("/cluster/{address}", "Broker", "broker.html", _broker, Part.CLUSTER, under="/cluster"),
)
LAST_PAGES = (
    Page("/clients", "Clients", "clients.html", _clients, Part.CLUSTER, menu=True),
    Page("/clients/{group}/{client:.+}", "Consumer", "consumer.html", _consumer, Part.CLUSTER, under="/groups"),
    Page("/acl", "ACL", "acl.html", _acl, Part.CLUSTER, menu=True),
)
