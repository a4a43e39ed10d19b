"""Topics of a cluster: which there are, where, and what their queues hold. As `rstore admin topic`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.client.admin.rows import to_row
from engine.client.admin.topics import consumers_of, list_topics, topic_rates, topic_status
from engine.console.web.page import Page, Part
from engine.format.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from engine.console.web.asked import Asked

ON_A_PAGE = 50
MOST_QUEUES = 1000


async def _topics(asked: Asked) -> dict[str, Any]:
    """What `rstore admin topic list --json` prints, a page at a time, with what brokers have configured."""
    admin = await asked.admin()
    wanted, kind = asked.text("q").lower(), asked.text("kind", "own")
    every = [one for one in await list_topics(admin) if wanted in one.topic.lower()]
    special = (RETRY_PREFIX, DLQ_PREFIX)
    kinds = {
        "own": [one for one in every if not one.topic.startswith(special)],
        "retry": [one for one in every if one.topic.startswith(RETRY_PREFIX)],
        "dead": [one for one in every if one.topic.startswith(DLQ_PREFIX)],
    }
    rows, page, pages = paged(asked, kinds.get(kind, every), ON_A_PAGE)
    masters = (await admin.clusters()).masters()
    tables = list(zip(masters, await admin.each(masters, admin.topic_tables), strict=True))
    lines = []
    for one in rows:
        where = {at.name: table[one.topic] for at, table in tables if one.topic in table}
        lines.append(
            {
                **to_row(one),
                "brokers": {
                    name: {
                        "read": config.number("readQueueNums", default=0),
                        "write": config.number("writeQueueNums", default=0),
                        "perm": config.number("perm", default=0),
                    }
                    for name, config in where.items()
                },
            }
        )
    return {"rows": lines, "all": len(kinds.get(kind, every)), "kind": kind, "page": page, "pages": pages}


def paged(asked: Asked, rows: list[Any], on_a_page: int) -> tuple[list[Any], int, int]:
    """The rows of the page that was asked for, its number, and how many there are."""
    pages = max(1, -(-len(rows) // on_a_page))
    page = min(asked.number("page", 1, 1), pages)
    return rows[(page - 1) * on_a_page : page * on_a_page], page, pages


async def _topic(asked: Asked) -> dict[str, Any]:
    """What `rstore admin topic route`, `status` and `rates` print of a topic, and who consumes it."""
    admin, topic = await asked.admin(), asked.needed("topic")
    route = await admin.demand_topic(topic)
    queues = await topic_status(admin, topic)
    return {
        "topic": topic,
        "route": to_row(route),
        "queues": [to_row(one) for one in queues[:MOST_QUEUES]],
        "messages": sum(one.max_offset - one.min_offset for one in queues),
        "groups": list(await consumers_of(admin, route, topic)),
        "rates": [to_row(one) for one in await topic_rates(admin, topic)],
    }


PAGES = (
    Page("/topics", "Topics", "topics.html", _topics, Part.CLUSTER, menu=True),
    Page("/topics/{topic}", "Topic", "topic.html", _topic, Part.CLUSTER, under="/topics"),
)
