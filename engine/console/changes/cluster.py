"""Changes of a running cluster: the commands of `rstore admin` that change, planned, shown, and carried out.

What was shown is what is sent: the plan itself is kept, not how to make it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from engine.client.admin.brokers import Cleaning, plan_cleaning, plan_setting
from engine.client.admin.dead_letters import plan_resend
from engine.client.admin.groups import plan_delete_group, plan_group
from engine.client.admin.messages import message_by_id
from engine.client.admin.offsets import END_MS, plan_clone, plan_reset
from engine.client.admin.plan import AdminPlan, AdminStep, carry_out_plan
from engine.client.admin.topics import TopicWanted, plan_delete_topic, plan_perm, plan_topic
from engine.client.clock import now_ms
from engine.client.messages import OutgoingMessage
from engine.client.queues import MessageQueue
from engine.client.sending import SendRules, request_of
from engine.console.changes.change import by_name
from engine.console.changes.plans import ShownPlan
from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format.message_json import inflate
from engine.format.properties import KEYS, TAGS, key_words

if TYPE_CHECKING:
    from engine.console.web.asked import Asked

MOST_CHOSEN = 64
_GROUP = "rstore-console"


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """A change of a cluster.

    Attributes:
        make: its plan, of the fields of a form. Raises RStoreError.
        back: the page to return to.
    """

    name: str
    make: Callable[[Asked], Awaitable[AdminPlan]]
    back: Callable[[Asked], str]

    async def plan(self, asked: Asked) -> ShownPlan:
        """See ConsoleChange."""
        plan = await self.make(asked)
        return ShownPlan(
            what=plan.change,
            plan=plan.to_json(),
            steps=tuple((one.where, one.what) for one in plan.steps),
            apply=lambda later: _apply(later, plan),
            back=self.back(asked),
            notes=plan.notes,
            changed=plan.changed,
        )


async def _apply(asked: Asked, plan: AdminPlan) -> dict[str, Any]:
    outcomes = await carry_out_plan(await asked.admin(), plan)
    failed = [one for one in outcomes if not one.is_done]
    words = "all requests of the plan were done" if not failed else f"{failed[0].step.where}: {failed[0].words}"
    return {"done": not failed, "outcome": words, "rows": [one.to_json() for one in outcomes], "next": None}


# --- what is planned -------------------------------------------------------------------------------------------------


async def _topic_set(asked: Asked) -> AdminPlan:
    """Make a topic, or change it: queues, permission, order."""
    order = asked.text("order")
    wanted = TopicWanted(
        read_queues=_number(asked, "queues"),
        write_queues=_number(asked, "queues"),
        perm=_number(asked, "perm"),
        order=None if not order else order == "yes",
    )
    return await plan_topic(await asked.admin(), asked.needed("topic"), wanted, asked.text("cluster") or None)


def _number(asked: Asked, name: str) -> int | None:
    return asked.number(name, 0, 0, 1 << 16) if asked.text(name) else None


async def _topic_perm(asked: Asked) -> AdminPlan:
    perm = asked.number("perm", 6, 2, 6)
    return await plan_perm(await asked.admin(), asked.needed("topic"), perm)


async def _topic_delete(asked: Asked) -> AdminPlan:
    return await plan_delete_topic(await asked.admin(), asked.needed("topic"))


async def _group_set(asked: Asked) -> AdminPlan:
    """Make a group, or change it."""
    wanted: dict[str, Any] = {}
    for field, key in (("consume", "consumeEnable"), ("broadcast", "consumeBroadcastEnable")):
        if asked.text(field):
            wanted[key] = asked.text(field) == "yes"
    for field, key in (("retries", "retryMaxTimes"), ("retry_queues", "retryQueueNums")):
        if asked.text(field):
            wanted[key] = asked.number(field, 0, 0, 1 << 16)
    return await plan_group(await asked.admin(), asked.needed("group"), wanted, asked.text("cluster") or None)


async def _group_delete(asked: Asked) -> AdminPlan:
    return await plan_delete_group(await asked.admin(), asked.needed("group"), offsets=asked.is_on("offsets"))


async def _offset_reset(asked: Asked) -> AdminPlan:
    """To a time, to the first messages, or to the end."""
    to = asked.needed("to")
    time = {"first": 0, "end": END_MS}.get(to)
    if time is None:
        time = asked.time("to")
    if time is None:
        raise InvalidArgument("to: a time, first or end")
    queue = _number(asked, "queue")
    return await plan_reset(
        await asked.client(), await asked.admin(), asked.needed("group"), asked.needed("topic"), time, queue
    )


async def _offset_clone(asked: Asked) -> AdminPlan:
    return await plan_clone(await asked.admin(), asked.needed("source"), asked.needed("group"), asked.needed("topic"))


async def _letters_resend(asked: Asked) -> AdminPlan:
    """The dead letters that were chosen: `ids`, separated by blanks."""
    ids = tuple(dict.fromkeys(asked.needed("ids").split()))
    if len(ids) > MOST_CHOSEN:
        raise InvalidArgument(f"more than {MOST_CHOSEN} dead letters were chosen")
    return await plan_resend(await asked.client(), await asked.admin(), asked.needed("group"), ids=ids)


async def _message_resend(asked: Asked) -> AdminPlan:
    """A copy of a message is sent to its topic: body, tags, keys and properties of the application."""
    admin, client = await asked.admin(), await asked.client()
    message = await message_by_id(admin, asked.needed("id"), asked.text("topic") or None)
    asked.session.demand_topic(message.topic)
    route = await admin.demand_topic(message.topic)
    masters = await admin.masters_of(route)
    if not masters:
        raise InvalidArgument(f"no master serves topic {message.topic}")
    plain = inflate(message)
    own = {name: value for name, value in message.properties.items() if not name.isupper()}
    again = OutgoingMessage(
        message.topic,
        message.body if plain is None else plain,
        message.properties.get(TAGS),
        tuple(key_words(message.properties.get(KEYS))),
        own,
    )
    at = masters[0]
    request = request_of(again, client.new_id(), now_ms(), SendRules(_GROUP))
    fields = request.to(MessageQueue(message.topic, at.name, 0))
    words = f"a copy of message {message.msg_id} is sent to topic {message.topic}"
    step = AdminStep.at(at, words, request.code, fields, request.body, sends=True)
    notes = ("it has a new id; every group of the topic consumes it",)
    return AdminPlan(f"message {message.msg_id}", (step,), notes)


async def _broker_setting(asked: Asked) -> AdminPlan:
    return await plan_setting(
        await asked.admin(), asked.needed("key"), asked.needed("value"), broker=asked.needed("broker")
    )


async def _clean(asked: Asked) -> AdminPlan:
    what = asked.needed("what").upper()
    if what not in Cleaning.__members__:
        raise InvalidArgument("what: queues, topics or log")
    return await plan_cleaning(await asked.admin(), Cleaning[what], broker=asked.text("broker") or None)


def _to_topics(_: Asked) -> str:
    return "/topics"


def _to_groups(_: Asked) -> str:
    return "/groups"


CHANGES = by_name(
    ClusterChange("topic-set", _topic_set, _to_topics),
    ClusterChange("topic-perm", _topic_perm, _to_topics),
    ClusterChange("topic-delete", _topic_delete, _to_topics),
    ClusterChange("group-set", _group_set, _to_groups),
    ClusterChange("group-delete", _group_delete, _to_groups),
    ClusterChange("offset-reset", _offset_reset, _to_groups),
    ClusterChange("offset-clone", _offset_clone, _to_groups),
    ClusterChange("dead-letters-resend", _letters_resend, lambda _: "/dead-letters"),
    ClusterChange("message-resend", _message_resend, lambda _: "/messages"),
    ClusterChange("broker-setting", _broker_setting, lambda _: "/cluster"),
    ClusterChange("clean", _clean, lambda _: "/cluster"),
)
