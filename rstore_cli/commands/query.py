"""`rstore query`: messages by key, through the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engine.dataclass import dataclass
from engine.format.quantities import moment
from rstore_cli._common import FOUND, parse_time, settings_of
from rstore_cli.render import printable, say_not_read
from rstore_cli.repository import Archive, ArchiveName, ArchiveOptions, KeyCommand, KeyFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.config import StoreConfig
    from engine.format.message import StoredMessage

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def query(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="A word of KEYS, or the client's message id (UNIQ_KEY).")],
    begin: Annotated[
        str | None,
        typer.Option("--begin", metavar="TIME", help="Lowest store time: ISO 8601, epoch ms, '2 hours ago'."),
    ] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="TIME", help="Highest store time.")] = None,
    most: Annotated[int, typer.Option("--max", min=1, metavar="N", help="Return the N newest.")] = 64,
    decompress: Annotated[bool, typer.Option("--decompress", help="Decompress bodies (zlib, lz4, zstd).")] = False,
    archive: Archive = None,
    archive_name: ArchiveName = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
) -> None:
    """Find messages by key, through the index, and show them in log order.

    Reads only; a broker may be running. With --archive also those that rstore expire --archive has deleted. Exit code 1
    when no message matches.
    """
    settings = settings_of(context)
    output = settings.output()
    first = None if begin is None else parse_time(begin, "--begin")
    archived = ArchiveOptions(archive, archive_name, key_file, key_command)
    archived.demand_archive()
    config = settings.load(numpy=True)

    from engine.files.disk import Disk
    from engine.format.message import decode
    from engine.inspect.next_step import arguments
    from engine.inspect.store.not_read import not_read
    from engine.log.message_reader import END_OF_TIME
    from rstore_cli.message_rows import Shower

    last = None if end is None else parse_time(end, "--end")
    asked = _Asked(topic, key, first, last)
    config = config.with_changes(max_msgs_num_batch=max(most, config.max_msgs_num_batch))
    with archived.open_store(config) as store:
        show = Shower(output, config, decompress=decompress, archived_below=store.archived_below)
        say_not_read(output, config.typed, not_read(Disk(), config))
        matches = store.query(topic, key, most, first or 0, END_OF_TIME if last is None else last)
        messages = [decode(record) for record in matches.messages]
        if not messages:
            known = store.known_names()
            known.demand_topic(topic)
            anywhere = store.query(topic, key, most)
            others = [decode(record) for record in anywhere.messages]
            messages = [one for one in others if asked.has(one)]  # a live broker has indexed it since the first look
            if not messages:
                index = store.index_said(anywhere.index_last_update_timestamp)
                output.note(_why_none(store.files.config, asked, others, index, known.hidden))
                step = store.archive_step("query", *arguments(topic, key))
                if step is not None:
                    output.note(f"note: the store has an archive. Next: {step}")
        for message in messages:
            show.show(message)
        show.tell_archived(archive or "")
    if show.bad or not show.shown:
        raise typer.Exit(FOUND)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A key of a topic, and the store times (ms) that were asked for, None for any."""

    topic: str
    key: str
    begin: int | None
    end: int | None

    def has(self, message: StoredMessage) -> bool:
        """Whether the message was stored then."""
        stored = message.store_timestamp
        return (self.begin is None or stored >= self.begin) and (self.end is None or stored <= self.end)

    @property
    def when(self) -> str:
        """The times in words; empty for any."""
        if not self.begin:
            return "" if self.end is None else f"before {moment(self.end)}"
        if self.end is None:
            return f"after {moment(self.begin)}"
        return f"between {moment(self.begin)} and {moment(self.end)}"


def _why_none(config: StoreConfig, asked: _Asked, others: Sequence[StoredMessage], index: str, hidden: str) -> str:
    """What is true where a query finds nothing.

    Args:
        config: the store's.
        asked: what was looked for.
        others: messages that have the key and other times.
        index: what the index says of the key.
        hidden: why topics are not known, empty where they are.
    """
    from engine.inspect.next_step import arguments, command_line, search_log

    topic, key = asked.topic, asked.key
    if others:
        newest = moment(others[-1].store_timestamp)
        every = command_line(config, "query", *arguments(topic, key))
        return (
            f"the key {printable(key)} of {topic} is in the index, but with no message stored {asked.when}: "
            f"the newest was stored at {newest}. Next: {every} (shows all)"
        )
    text = f"no message of {topic} with the key {printable(key)}: {index}"
    if hidden:
        text += f". Whether {topic} exists is not known: topics are in RocksDB ({hidden}), which rstore does not read"
    return f"{text}. Next: {search_log(config, key)}"
