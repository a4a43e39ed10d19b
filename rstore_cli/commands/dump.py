"""`rstore dump`: everything as it lies on disk. What RocketMQ 5 alone has is in dump_timer, DLedger's entries
are in dump_dledger."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.format.quantities import moment
from rstore_cli._common import FOUND, OK, Jobs, Settings, parse_size, settings_of
from rstore_cli._spark import Conf, Master, SparkOptions, SplitBytes, UseSpark, on_spark, the_stores
from rstore_cli.commands import dump_compaction, dump_dledger, dump_rocksdbstore, dump_tiered, dump_timer
from rstore_cli.commands.dump_timer import Limit
from rstore_cli.render import say_not_read

if TYPE_CHECKING:
    from engine.inspect.store.survey import StoreFiles
    from rstore_cli.render import Output

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    help="Show every field of log, queues, index, checkpoint, timer, epochs, DLedger entries or config. "
    "Reads only; continues after damage.",
)
_WIDTHS = {
    "file": 17,
    "keyHash": 10,
    "physicalOffset": 14,
    "queueOffset": 12,
    "storeTimestamp": 14,
    "tagsCode": 12,
}
"""Columns of what usually stands below a head; of others 8."""
From = Annotated[str | None, typer.Option("--from", metavar="OFFSET", help="First physical offset.")]
To = Annotated[str | None, typer.Option("--to", metavar="OFFSET", help="Stop before this physical offset.")]
QueueFrom = Annotated[str | None, typer.Option("--from", metavar="OFFSET", help="First queue offset.")]
QueueTo = Annotated[str | None, typer.Option("--to", metavar="OFFSET", help="Stop before this queue offset.")]


@app.command()
def commitlog(
    context: typer.Context,
    start: From = None,
    end: To = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only messages of this topic.")] = None,
    limit: Limit = None,
    redact: Annotated[bool, typer.Option("--redact", help="Leave bodies out.")] = False,
    jobs: Jobs = None,
    spark: UseSpark = False,
    master: Master = None,
    conf: Conf = None,
    split_bytes: SplitBytes = None,
) -> None:
    """Show messages, blanks and damage in log order. Exit code 1 when there is damage."""
    settings = settings_of(context)
    output = settings.output()
    low, high = _offset(start, "--from"), _offset(end, "--to")
    given = SparkOptions.of(master, conf, split_bytes, used=spark, jobs=jobs)
    if spark:
        raise typer.Exit(_on_spark(settings, given, low, high, limit, topic=topic, redact=redact))
    config = settings.load()

    from engine.files.disk import Disk
    from engine.inspect.dump.dump import DAMAGE, dump_log
    from engine.inspect.store.known_names import KnownNames
    from engine.inspect.store.not_read import not_read
    from engine.inspect.store.survey import survey
    from rstore_cli.log_rows import row_text

    beside = not_read(Disk(), config)
    say_not_read(output, config.typed, beside)
    files = survey(Disk(), config)
    damaged = bool(beside)
    shown = 0
    if output.json:
        wanted = _LogLines(output, topic, redact, limit)
        wanted.show(files, low, high, jobs)
        damaged |= wanted.damaged
        shown = wanted.shown
    else:
        for row in islice(dump_log(Disk(), files, start=low, end=high, topic=topic), limit):
            damaged |= row.kind == DAMAGE
            shown += row.kind != DAMAGE
            sys.stdout.write(row_text(row, redact=redact))
    if topic is not None and not shown and limit != 0:
        known = KnownNames.of(Disk(), files)
        known.demand_topic(topic)
        unknown = f"; topics are in RocksDB ({known.hidden}), which rstore does not read"
        output.note(f"no message of topic {topic} was found in the log{unknown if known.hidden else ''}")
        damaged |= bool(known.hidden)  # nothing else tells a wrong name
    if damaged:
        raise typer.Exit(FOUND)


class _LogLines:
    """The log as JSON lines on stdout, `limit` of them. `shown`: those that are no damage; `damaged`: some are."""

    def __init__(self, output: Output, topic: str | None, redact: bool, limit: int | None) -> None:
        self._output = output
        self._topic = topic
        self._redact = redact
        self._left = limit
        self.shown = 0
        self.damaged = False

    def show(self, files: StoreFiles, start: int | None, end: int | None, jobs: int | None) -> None:
        """Between two physical offsets, read and put into words by `jobs` threads. Raises StorageError."""
        from engine.files.disk import Disk
        from engine.inspect.dump.dump import BLANK, DAMAGE, MESSAGE, LogRow, dump_log_made, stored_topic
        from rstore_cli.blocks import BlockWriter
        from rstore_cli.log_lines import LogLines
        from rstore_cli.log_rows import row_line

        if self._left == 0:
            return
        output = self._output
        maker = LogLines(MESSAGE, redact=self._redact, ascii=output.ascii)
        topic = None if self._topic is None else stored_topic(self._topic)
        threads = jobs if self._left is None else 1  # who asks for a few is not to wait for many
        made = dump_log_made(
            Disk(), files, lambda batch: maker.made(batch, topic, self._left), start=start, end=end, jobs=threads
        )
        with BlockWriter(ascii=output.ascii) as writer:
            for one in made:
                if not isinstance(one, LogRow):
                    for block in one.blocks:
                        writer.write(block)
                    count = one.count
                    self.shown += count
                elif one.kind == BLANK and topic is not None:
                    continue
                else:
                    writer.write(row_line(one, output.encoded).encode("utf-8", "backslashreplace"))
                    count = 1
                    self.shown += one.kind != DAMAGE
                    self.damaged |= one.kind == DAMAGE
                if self._left is not None:
                    self._left -= count
                    if self._left == 0:
                        return


def _on_spark(
    settings: Settings,
    given: SparkOptions,
    start: int | None,
    end: int | None,
    limit: int | None,
    *,
    topic: str | None,
    redact: bool,
) -> int:
    """The same lines, made by executors."""
    from engine.pipeline.known import demand_known
    from rstore_cli.dump_spark import Form, lines

    output = settings.output()
    form = Form(output.json, output.ascii, topic, redact)
    (store,) = the_stores(settings, None)
    damaged = False
    shown = 0
    with (
        on_spark(settings, given, "dump") as spark,
        contextlib.closing(lines(spark, store, form, start=start, end=end, split_bytes=given.split_bytes)) as printed,
    ):
        for line, is_damage in islice(printed, limit):
            damaged |= is_damage
            shown += not is_damage
            sys.stdout.write(line)
    if topic is not None and not shown:
        demand_known([store], [topic])
    return FOUND if damaged else OK


@app.command()
def consumequeue(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    queue: Annotated[int, typer.Argument(metavar="QUEUE", min=0)],
    start: QueueFrom = None,
    end: QueueTo = None,
    limit: Limit = None,
) -> None:
    """Show the units of one queue. Exit code 1 when a batch queue of RocketMQ 5 is damaged."""
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()
    low, high = _offset(start, "--from"), _offset(end, "--to")

    from engine.files.disk import Disk
    from engine.inspect.dump.number_rows import queue_blocks
    from engine.inspect.store.survey import survey

    files = survey(Disk(), config)
    if output.json and not files.newer.is_batch(topic):
        output.number_lines(queue_blocks(Disk(), files, topic, queue, start=low, end=high), limit)
        return

    from engine.inspect.dump.dump import batch_rows_of, dump_queue

    rows = islice(dump_queue(Disk(), files, topic, queue, start=low, end=high), limit)
    if not files.newer.is_batch(topic):
        _lines(output, rows, ["queueOffset", "physicalOffset", "size", "tagsCode"])
        return
    _lines(output, rows, ["queueOffset", "batchSize", "physicalOffset", "size", "tagsCode", "storeTimestamp"])
    units = batch_rows_of(Disk(), files, topic, queue)
    damage = () if units is None else tuple(units.bad())
    for bad in damage:
        output.warn(f"! {bad}")
    if damage:
        raise typer.Exit(FOUND)


@app.command()
def index(
    context: typer.Context,
    start: From = None,
    end: To = None,
    limit: Limit = None,
    header: Annotated[
        bool, typer.Option("--header", help="Show the headers of the files instead of their entries.")
    ] = False,
    file: Annotated[str | None, typer.Option("--file", metavar="NAME", help="Only this index file.")] = None,
) -> None:
    """Show the entries of all index files, oldest first, or the headers of the files."""
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()
    low, high = _offset(start, "--from"), _offset(end, "--to")

    from engine.files.disk import Disk
    from engine.inspect.dump.dump import IndexFileDump, dump_index, dump_index_headers
    from engine.inspect.dump.number_rows import BrokenIndexFile, NumberRows, index_blocks

    broken: list[IndexFileDump | BrokenIndexFile] = []

    def sound(rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
        for row in rows:
            if not isinstance(row, IndexFileDump):
                yield row
            elif row.header is not None:
                yield row.to_json()
            else:
                broken.append(row)

    def readable(blocks: Iterable[NumberRows | BrokenIndexFile]) -> Iterator[NumberRows]:
        for block in blocks:
            if isinstance(block, NumberRows):
                yield block
            else:
                broken.append(block)

    if header:
        headers = (row for row in dump_index_headers(Disk(), config) if file in (None, row.name))
        heads = [
            "file",
            "beginTimestamp",
            "endTimestamp",
            "beginPhyOffset",
            "endPhyOffset",
            "hashSlotCount",
            "indexCount",
        ]
        _lines(output, islice(sound(headers), limit), heads)
    elif output.json:
        blocks = index_blocks(Disk(), config, start=low, end=high, file=file)
        output.number_lines(readable(blocks), limit)
    else:
        entries = sound(dump_index(Disk(), config, start=low, end=high, file=file))
        _lines(output, islice(entries, limit), ["file", "number", "keyHash", "physicalOffset", "timeDiff", "previous"])
    for bad in broken:
        output.warn(f"! {bad.error}")
    if broken:
        raise typer.Exit(FOUND)


@app.command()
def checkpoint(context: typer.Context) -> None:
    """Show up to which store time log, queues and index are on disk."""
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()

    from engine.files.disk import Disk
    from engine.inspect.dump.dump import dump_checkpoint

    point = dump_checkpoint(Disk(), config)
    values = point.to_json()
    if output.json:
        output.document(values)
    else:
        values |= {f"timer {name}": value for name, value in values.pop("timer", {}).items()}
        times = ("Timestamp", "timestamp", "TimeMs")
        output.facts([(n, f"{v}  {moment(v)}" if n.endswith(times) else str(v)) for n, v in values.items()])
    if not point.whole:
        output.warn("! the checkpoint file is short: missing fields are shown as 0")
    if point.timer_error is not None:
        output.warn(f"! {point.timer_error}")
    if not point.whole or point.timer_error is not None:
        raise typer.Exit(FOUND)


app.command("timerlog")(dump_timer.timerlog)
app.command("timerwheel")(dump_timer.timerwheel)
app.command("epoch")(dump_timer.epoch)
app.command("tiered")(dump_tiered.tiered)
app.command("dledger")(dump_dledger.dledger)
app.command("compaction")(dump_compaction.compaction)
app.command("rocksdbstore")(dump_rocksdbstore.rocksdbstore)


@app.command()
def config(context: typer.Context) -> None:
    """Show the files of config/. A broken file is read from its .bak (exit code 1)."""
    settings = settings_of(context)
    output = settings.output()
    store = settings.load()

    import json

    from engine.files.disk import Disk
    from engine.inspect.dump.dump import dump_config
    from engine.inspect.store.newer import ROCKSDB_CONFIG
    from engine.inspect.store.survey import survey

    files = survey(Disk(), store)
    broken = False
    some = False
    for file in dump_config(Disk(), files):
        some = True
        broken |= file.problem is not None
        if output.json:
            output.line(file.to_json())
            continue
        output.text(f"# {file.name}" + ("" if file.source in (None, file.name) else f", read from {file.source}"))
        if file.problem is not None:
            output.text(f"! {file.problem}")
        if file.source is not None:
            output.raw(json.dumps(file.value, indent=2, ensure_ascii=False))
        output.text()
    if files.newer.no_config_files:
        hidden = files.newer.where(ROCKSDB_CONFIG)
        output.note(f"note: {ROCKSDB_CONFIG} ({hidden}) are not read: pip install 'rstore[rocksdb]'")
    elif not some:
        output.note("no configuration: a broker keeps it in config/ in the store's directory")
    if broken:
        raise typer.Exit(FOUND)


# --- shared ----------------------------------------------------------------------------------------------------------


def _offset(text: str | None, what: str) -> int | None:
    return None if text is None else parse_size(text, what)


def _lines(output: Output, rows: Iterable[dict[str, Any]], heads: list[str]) -> None:
    """Rows as JSON lines, or in columns wide enough for what usually stands in them."""
    if output.json:
        output.lines(rows)
        return
    rows = iter(rows)
    first = list(islice(rows, 1))  # what is wrong is said before the heads are printed
    widths = [max(len(head), _WIDTHS.get(head, 8)) for head in heads]
    if first and output.width is not None and sum(widths) + 2 * len(widths) - 2 > output.width:
        for row in chain(first, rows):
            output.facts([(head, str(row[head])) for head in heads])
            output.text()
        return
    output.text("  ".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    for row in chain(first, rows):
        output.raw("  ".join(f"{row[head]!s:>{width}}" for head, width in zip(heads, widths, strict=True)))
