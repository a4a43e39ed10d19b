"""`rstore trace`: what became of a message, by its records, its groups' offsets and the trace topic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from engine.format.quantities import counted, moment
from rstore_cli._common import FOUND, settings_of
from rstore_cli.cluster import NameServers, Namespace, TlsCa, client_config, is_of_cluster
from rstore_cli.render import printable

if TYPE_CHECKING:
    from engine.client.client import ClientConfig
    from engine.client.cluster_lives import ClusterLives
    from engine.client.lives import GroupPlace, LifeEvent, MessageLife
    from rstore_cli.render import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def trace(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key: Annotated[str, typer.Argument(metavar="KEY|ID", help="A word of KEYS, or the message id (UNIQ_KEY).")],
    namesrv: NameServers = None,
    most: Annotated[int, typer.Option("--max", min=1, metavar="N", help="Maximum messages: the newest.")] = 16,
    namespace: Namespace = "",
    tls_ca: TlsCa = None,
) -> None:
    """Show the life of a message: stored, half, committed, delayed, retried, dead letter; and who has consumed it.

    With --namesrv in a running cluster, Apache's or rstore's; else in the store. Where clients wrote traces
    (RMQ_SYS_TRACE_TOPIC), what they told is shown, too. Reads only; exit code 1 when no message has the key.
    """
    settings = settings_of(context)
    output = settings.output()
    if is_of_cluster(context):
        told = asyncio.run(_of_cluster(client_config(namesrv, namespace, tls_ca), topic, key, most))
        lives = told.lives
        for note in told.notes(topic):
            output.note(f"note: {note}")
    else:
        config = settings.load()

        from engine.files.disk import Disk
        from engine.inspect.store.known_names import KnownNames
        from engine.read_store import ReadStore
        from engine.store_lives import lives_in

        with ReadStore(config) as store:
            lives = lives_in(store, topic, key, most)
            if not lives:
                KnownNames.of(Disk(), store.files).demand_topic(topic)
    for life in lives:
        _show(output, life)
    if not lives:
        output.note(f"no message of {printable(topic)} has the key or id {printable(key)}")
        raise typer.Exit(FOUND)


async def _of_cluster(config: ClientConfig, topic: str, key: str, most: int) -> ClusterLives:
    from engine.client.client import ClusterClient
    from engine.client.cluster_lives import lives_of

    async with ClusterClient(config) as client:
        return await lives_of(client, topic, key, most)


def _show(output: Output, life: MessageLife) -> None:
    if output.json:
        rows = [event.to_json() for event in life.events] + [place.to_json() for place in life.groups]
        for row in rows:
            output.line({"id": life.id, **row})
        return
    keys = f"  keys {printable(life.keys)}" if life.keys else ""
    output.raw(f"{printable(life.id)}  {printable(life.topic)}{keys}")
    for event in life.events:
        when = moment(event.time_ms) if event.time_ms else "at an unknown time"
        output.raw(f"  {when}  {event.stage.value}: {_what(event)}")
    for place in life.groups:
        output.raw(f"  group {printable(place.group)}: {_where(place)}")


def _what(event: LifeEvent) -> str:
    from engine.client.lives import LifeStage, outcome

    message, told = event.message, event.trace
    if message is not None:
        text = f"{printable(message.topic)}/{message.queue_id} at {message.queue_offset}, log {message.physical_offset}"
        if event.stage is LifeStage.DELAYED:
            to = printable(message.properties.get("REAL_TOPIC", "?"))
            due = f", due {moment(event.due_ms)}" if event.due_ms is not None else ""
            text += f", level {message.queue_id + 1} to {to}{due}"
        if message.reconsume_times:
            text += f", {counted(message.reconsume_times, 'failure')}"
        return text
    assert told is not None
    group = f"group {printable(told.group)}" if told.group else "a group"
    match event.stage:
        case LifeStage.SENT:
            status = "success" if told.success else "stored, but not flushed or replicated in time"
            return f"by {group} to {printable(told.store_host)} in {told.cost_ms} ms, {status}"
        case LifeStage.SETTLED:
            return f"by {group}: {printable(told.state)}"
        case LifeStage.CONSUMING:
            return f"of {group}" + (f", {counted(told.retries, 'failure')} before" if told.retries else "")
        case _:
            return f"by {group} in {told.cost_ms} ms: {outcome(told)}"


def _where(place: GroupPlace) -> str:
    at = f"{printable(place.topic)}/{place.queue_id} at {place.queue_offset}"
    if place.offset is None:
        return f"has committed no offset for {printable(place.topic)}/{place.queue_id}"
    if place.is_after:
        return f"its offset {place.offset} is after {at}"
    unread = place.queue_offset - place.offset
    return f"its offset {place.offset} is before {at}, {counted(unread, 'unread message')} before it"
