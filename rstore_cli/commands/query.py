"""`rstore query`: messages by key, through the index."""

from __future__ import annotations

from typing import Annotated

import typer

from rstore_cli._common import FOUND, parse_time, settings_of
from rstore_cli.render import moment, say_not_read

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
    most: Annotated[int, typer.Option("--max", min=1, metavar="N", help="The newest so many.")] = 64,
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
    show = Shower(output, decompress=decompress)
    with ReadStore(config) as store:
        say_not_read(output, config.typed, not_read(Disk(), config))
        result = store.query(topic, key, most, first, last)
        for record in result.messages:
            show.show(decode(record))
        if not result.messages:
            KnownNames.of(Disk(), store.files).demand_topic(topic)
            until = moment(result.index_last_update_timestamp)
            output.note(f"no message of {topic} with the key {key} in the index (which goes up to {until})")
    if show.bad or not show.shown:
        raise typer.Exit(FOUND)
