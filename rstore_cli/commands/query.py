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
        str | None, typer.Option("--begin", metavar="TIME", help="Stored then or later: ISO 8601, epoch ms, '2h ago'.")
    ] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="TIME", help="Stored then or before.")] = None,
    most: Annotated[int, typer.Option("--max", min=1, metavar="N", help="The newest so many.")] = 64,
    decompress: Annotated[bool, typer.Option("--decompress", help="Show zlib-compressed bodies as sent.")] = False,
) -> None:
    """Find messages by key, through the index.

    Reads only, and runs beside a live broker. In log order.
    """
    settings = settings_of(context)
    output = settings.output()
    first = 0 if begin is None else parse_time(begin, "--begin")
    config = settings.load()

    from engine.files.disk import Disk
    from engine.format.message import decode
    from engine.log.message_reader import END_OF_TIME
    from engine.read_store import ReadStore
    from engine.repair.not_read import not_read
    from rstore_cli.messages import to_json, to_text

    last = END_OF_TIME if end is None else parse_time(end, "--end")
    config = config.with_changes(max_msgs_num_batch=max(most, config.max_msgs_num_batch))
    bad = False
    with ReadStore(config) as store:
        say_not_read(output, config.typed, not_read(Disk(), config))
        result = store.query(topic, key, most, first, last)
        for record in result.messages:
            message = decode(record)
            if output.json:
                output.line(to_json(message, decompress=decompress))
            else:
                for line in to_text(message, decompress=decompress):
                    output.text(line)
            if not message.crc_ok:
                bad = True
                output.warn(f"! the body at {message.physical_offset} is not what its CRC says: rstore verify-crc")
        if not result.messages:
            known = any(queue.topic == topic for queue in store.queues())
            why = "" if known else ", and there is no such topic"
            until = moment(result.index_last_update_timestamp)
            output.note(f"no message of {topic} with the key {key} in the index (which goes up to {until}){why}")
    if bad:
        raise typer.Exit(FOUND)
