"""`rstore init`: an empty store."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import parse_size, settings_of
from rstore_cli.render import size

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def init(
    context: typer.Context,
    commitlog_file_size: Annotated[
        str | None,
        typer.Option(
            "--commitlog-file-size", metavar="SIZE", help="Size of a segment of the log, for example 64M (default: 1G)."
        ),
    ] = None,
    queue_file_units: Annotated[
        str | None,
        typer.Option("--queue-file-units", metavar="N", help="Units in a consume queue file (default: 300000)."),
    ] = None,
    index_slots: Annotated[
        str | None, typer.Option("--index-slots", metavar="N", help="Hash slots in an index file (default: 5000000).")
    ] = None,
    index_entries: Annotated[
        str | None, typer.Option("--index-entries", metavar="N", help="Entries in an index file (default: 20000000).")
    ] = None,
) -> None:
    """Create an empty store at --store.

    The directory must be empty or missing. The sizes are written to rstore.conf in it; a broker needs the same sizes in
    its own broker.conf.
    """
    settings = settings_of(context)
    output = settings.output()
    from engine.format.queue_unit import UNIT_SIZE

    units = None if queue_file_units is None else parse_size(queue_file_units, "--queue-file-units")
    given = {
        "mapped_file_size_commit_log": _size(commitlog_file_size, "--commitlog-file-size"),
        "mapped_file_size_consume_queue": None if units is None else units * UNIT_SIZE,
        "max_hash_slot_num": _size(index_slots, "--index-slots"),
        "max_index_num": _size(index_entries, "--index-entries"),
    }
    config = settings.load()
    try:
        config = config.with_changes(**{name: value for name, value in given.items() if value is not None})
    except InvalidArgument as error:
        raise InvalidArgument(error.message, hint=error.hint or "see rstore init --help") from None

    from engine.config import STORE_CONF
    from engine.files.disk import Disk
    from engine.format.index_file import IndexLayout
    from engine.inspect.next_step import command_line
    from engine.inspect.store.path_slips import told_of_a_new_store
    from engine.repair.create import create_store

    sizes = create_store(Disk(), config)
    for note in told_of_a_new_store(config):
        output.note(f"note: {note}")
    root = str(config.store_path_root_dir)
    if output.json:
        output.document({"store": root, "sizes": sizes})
        return
    output.text(f"An empty store is in {root}; its sizes are in {STORE_CONF} there:")
    for key, value in sizes.items():
        output.text(f"  {key}={value}")
    index = IndexLayout(config.max_hash_slot_num, config.max_index_num).file_size
    segment, queue = size(config.mapped_file_size_commit_log), size(config.mapped_file_size_consume_queue)
    output.text(f"Disk space: {segment} per segment, {queue} per queue file, {size(index)} per index file,")
    output.text("each allocated in full by its first message (an index file by the first with a key).")
    output.text(f"Next: {command_line(config, 'put', 'TOPIC', '--body', 'hello')}")


def _size(text: str | None, what: str) -> int | None:
    return None if text is None else parse_size(text, what)
