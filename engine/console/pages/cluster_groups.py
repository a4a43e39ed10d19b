"""Consumer groups of a cluster: how far each has come, who is in it, its dead letters. As `rstore admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.client.admin.dead_letters import dead_letter_queues
from engine.client.admin.groups import group_config, group_progress, list_groups
from engine.client.admin.members import consumer_states, consumers_of_group
from engine.client.admin.rows import to_row
from engine.console.pages.cluster_messages import MOST, message_rows, since
from engine.console.pages.cluster_topics import paged
from engine.console.web.page import Page, Part
from engine.errors import RStoreError
from engine.format.names import DLQ_PREFIX

if TYPE_CHECKING:
    from engine.client.admin.members import GroupOnline
    from engine.client.admin.session import AdminSession
    from engine.console.web.asked import Asked

ON_A_PAGE = 25
MOST_ASKED = 16
"""Consumers of a group that are asked what they subscribe to."""


async def _groups(asked: Asked) -> dict[str, Any]:
    """What `rstore admin group list --json` prints, a page at a time."""
    admin = await asked.admin()
    wanted = asked.text("q").lower()
    names = sorted(one for one in await admin.groups() if wanted in one.lower())
    chosen, page, pages = paged(asked, names, ON_A_PAGE)
    rows = [to_row(one) for one in await list_groups(admin, chosen)]
    return {"rows": rows, "all": len(names), "page": page, "pages": pages}


async def _group(asked: Asked) -> dict[str, Any]:
    """What `rstore admin consumer progress --clients`, `connections` and `admin group config` print of a group."""
    admin, group = await asked.admin(), asked.needed("group")
    progress = await group_progress(admin, group, clients=True)
    online = await consumers_of_group(admin, group)
    return {
        "group": group,
        "progress": to_row(progress),
        "online": to_row(online),
        "config": [to_row(one) for one in await group_config(admin, group)],
        "disagree": await _disagreement(admin, online),
    }


async def _disagreement(admin: AdminSession, online: GroupOnline) -> list[dict[str, Any]]:
    """Topics to which the group's consumers have subscribed differently: expression by client, empty for none."""
    if len(online.clients) < 2:
        return []
    by_topic: dict[str, dict[str, str]] = {}
    asked = [one.client_id for one in online.clients[:MOST_ASKED]]
    heard: list[str] = []
    for client in asked:
        try:
            (state,) = await consumer_states(admin, online.group, client)
        except RStoreError:  # it has left, or does not answer: its own page says so
            continue
        heard.append(client)
        for one in state.subscriptions:
            by_topic.setdefault(str(one.get("topic")), {})[client] = str(one.get("subString"))
    return [
        {"topic": topic, "clients": [{"client": one, "expression": told.get(one)} for one in heard]}
        for topic, told in sorted(by_topic.items())
        if len({told.get(one) for one in heard}) > 1
    ]


async def _dead_letter_groups(asked: Asked) -> dict[str, Any]:
    """What `rstore admin dlq list --json` prints."""
    return {"rows": [to_row(one) for one in await dead_letter_queues(await asked.admin())]}


async def _dead_letters(asked: Asked) -> dict[str, Any]:
    """What `rstore admin dlq list GROUP --json` prints, as much as a page has."""
    group = asked.needed("group")
    asked.session.demand_topic(DLQ_PREFIX + group)
    letters = await since(asked, DLQ_PREFIX + group, asked.time("since"), None)
    rows, _ = await message_rows(letters, asked)
    return {"group": group, "rows": rows, "most": MOST}


PAGES = (
    Page("/groups", "Groups", "groups.html", _groups, Part.CLUSTER, menu=True),
    Page("/groups/{group}", "Group", "group.html", _group, Part.CLUSTER, under="/groups"),
)
DEAD_LETTER_PAGES = (
    Page("/dead-letters", "Dead letters", "dead_letters.html", _dead_letter_groups, Part.CLUSTER, menu=True),
    Page(
        "/dead-letters/{group}",
        "Dead letters",
        "dead_letter_list.html",
        _dead_letters,
        Part.CLUSTER,
        under="/dead-letters",
    ),
)
