"""`rstore query`: messages by key, through the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engine.format.quantities import moment
from rstore_cli._common import FOUND, parse_time, settings_of
from rstore_cli.render import printable, say_not_read

if TYPE_CHECKING:
    from engine.read_store import ReadStore

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def query(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="A word of KEYS, or the unique id (UNIQ_KEY).")],
    begin: Annotated[
        str | None,
        typer.Option("--begin", metavar="TIME", help="Stored then or later: ISO 8601, epoch ms, '2 hours ago'."),
    ] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="TIME", help="Stored then or before.")] = None,
    most: Annotated[int, typer.Option("--max", min=1, metavar="N", help="Return the N newest.")] = 64,
    decompress: Annotated[bool, typer.Option("--decompress", help="Show zlib-compressed bodies as sent.")] = False,
) -> None:
    """Find messages by key, through the index.

    Reads only, and runs beside a live broker. In log order. Exit code 1 when there is none.
    """
    settings = settings_of(context)
    output = settings.output()
    first = 0 if begin is None else parse_time(begin, "--begin")
    config = settings.load()

    from engine.files.disk import Disk
    from engine.format.message import decode
    from engine.log.message_reader import END_OF_TIME
    from engine.read_store import ReadStore
    from engine.repair.known_names import KnownNames
    from engine.repair.not_read import not_read
    from rstore_cli.message_rows import Shower

    last = END_OF_TIME if end is None else parse_time(end, "--end")
    config = config.with_changes(max_msgs_num_batch=max(most, config.max_msgs_num_batch))
    show = Shower(output, config, decompress=decompress)
    with ReadStore(config) as store:
        say_not_read(output, config.typed, not_read(Disk(), config))
        result = store.query(topic, key, most, first, last)
        for record in result.messages:
            show.show(decode(record))
        if not result.messages:
            known = KnownNames.of(Disk(), store.files)
            known.demand_topic(topic)
            output.note(_why_none(store, topic, key, begin=first, end=last, hidden=known.hidden))
    if show.bad or not show.shown:
        raise typer.Exit(FOUND)


def _why_none(store: ReadStore, topic: str, key: str, *, begin: int, end: int, hidden: str) -> str:
    """What is true where a query finds nothing. `begin`, `end`: as asked for (ms)."""
    from engine.format.message import decode
    from engine.log.message_reader import END_OF_TIME
    from engine.repair.next_step import arguments, command_line, search_log

    config = store.files.config
    anywhere = store.query(topic, key, 1)
    if anywhere.messages:
        bounds = [f"after {moment(begin)}"] * (begin > 0) + [f"before {moment(end)}"] * (end < END_OF_TIME)
        if len(bounds) > 1:
            bounds = [f"between {moment(begin)} and {moment(end)}"]
        newest = moment(decode(anywhere.messages[-1]).store_timestamp)
        every = command_line(config, "query", *arguments(topic, key))
        return (
            f"the key {printable(key)} of {topic} is in the index, but with no message stored {bounds[0]}: "
            f"the newest was stored at {newest}. Next: {every} (shows all)"
        )
    index = store.index_said(anywhere.index_last_update_timestamp)
    text = f"no message of {topic} with the key {printable(key)}: {index}"
    if hidden:
        text += f". Whether {topic} exists is not known: topics are in RocksDB ({hidden}), which rstore does not read"
    return f"{text}. Next: {search_log(config, key)}"
