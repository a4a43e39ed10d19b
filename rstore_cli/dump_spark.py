"""`rstore dump commitlog --spark`: executors make the lines of their splits, the driver puts them in log order.

What only the whole log tells stays with the driver: whether damage lies in the middle or is the log's unwritten rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.files.disk import Disk
from engine.format import message
from engine.inspect.check.verify import boundary, judge_tail
from engine.inspect.dump.dump import BLANK, DAMAGE, MESSAGE, LogRow, stored_topic
from engine.log.scan import MISSING_SEGMENT, Damage, RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.pipeline.failures import carried
from engine.pipeline.splits import Split, events, log_end, open_log, plan_splits
from rstore_cli.log_rows import row_line, row_text
from rstore_cli.render import encoder

if TYPE_CHECKING:
    from engine.pipeline.spark import SparkSession
    from engine.pipeline.stores import StoreRef

SPLIT_BYTES = 8 << 20
"""A split's lines are in memory as a whole, here and there."""

Piece = str | Damage
"""What a sound thing in the log prints, with its end (nothing when it isn't asked for); or damage, to be judged."""


@dataclass(frozen=True, slots=True)
class Form:
    """What is printed, and how.

    Attributes:
        json: JSON lines, else text.
        ascii: only ASCII characters in JSON.
        topic: only its messages, and damage.
        redact: without bodies.
    """

    json: bool
    ascii: bool
    topic: str | None = None
    redact: bool = False

    def row(self, row: LogRow) -> str:
        """A row that is no message."""
        return row_line(row, encoder(ascii=self.ascii)) if self.json else row_text(row, redact=self.redact)

    def messages(self) -> Callable[[RecordBatch], Iterable[str]]:
        """What makes messages' lines."""
        wanted = None if self.topic is None else stored_topic(self.topic)
        if not self.json:
            return lambda batch: _texts(batch, wanted, redact=self.redact)
        from rstore_cli.log_lines import LogLines

        maker = LogLines(MESSAGE, redact=self.redact, ascii=self.ascii)
        return lambda batch: maker.lines(batch, wanted)


def lines(
    spark: SparkSession, store: StoreRef, form: Form, *, start: int | None, end: int | None, split_bytes: int | None
) -> Generator[tuple[str, bool]]:
    """What each thing in the log prints, in log order, and whether it is damage.

    Args:
        spark: the session.
        store: whose log.
        form: how it looks.
        start: physical offset; what is there or begins after it (default: all).
        end: physical offset; what begins before it.
        split_bytes: an executor's task, about (default: `SPLIT_BYTES`).

    Raises:
        StorageError, and whatever Spark raises.
    """
    from engine.pipeline.in_order import in_order

    if not store.segments:
        return
    with ClosedLog(Disk(), store.segments) as log, contextlib.ExitStack() as stack:
        scanner = Scanner(log, max_message_size=store.config.max_message_size)
        first = store.segments[0].offset if start is None else boundary(log, scanner, start)
        if store.live:  # frozen: what is being written has no end
            written = log_end(store, Disk())
            end = written if end is None else min(end, written)
        size = split_bytes or SPLIT_BYTES
        splits = plan_splits([store], split_bytes=size, start=first, end=end, known=start is not None)
        work = partial(_pieces, form=form)
        answers = stack.enter_context(contextlib.closing(in_order(spark, splits, work)))
        held: list[LogRow] = []
        tail: list[Damage] = []
        last: Split | None = None
        for split, pieces in zip(splits, answers, strict=True):
            if last is not None and last.segment.end < split.segment.offset:
                held.append(_gap(last, split))
            last = split
            for piece in pieces:
                if isinstance(piece, Damage):
                    reason = piece.reason.value
                    held.append(LogRow(DAMAGE, piece.offset, piece.length, piece.segment.path, reason=reason))
                    tail.append(piece)
                    continue
                yield from ((form.row(row), True) for row in held)
                held.clear()
                tail.clear()
                if piece:
                    yield piece, False
        for bad in judge_tail(log, tail, store.live):
            yield form.row(LogRow(DAMAGE, bad.offset, bad.length, bad.path, reason=bad.reason)), True


def _gap(before: Split, after: Split) -> LogRow:
    at = before.segment.end
    return LogRow(DAMAGE, at, after.segment.offset - at, before.segment.path, reason=MISSING_SEGMENT)


def _pieces(split: Split, form: Form) -> list[Piece]:
    """A split's pieces, made on an executor."""
    with carried(), open_log(split, Disk()) as log:
        made = form.messages()
        pieces: list[Piece] = []
        for event in events(split, log):
            match event:
                case RecordBatch():
                    pieces.append("")  # something sound, whether it is asked for or not
                    pieces += made(event)
                case Damage():
                    pieces.append(event)
                case _:
                    wanted = form.topic is None
                    pieces.append(form.row(LogRow(BLANK, event.offset, event.length)) if wanted else "")
        return pieces


def _texts(batch: RecordBatch, topic: bytes | None, *, redact: bool) -> Iterator[str]:
    for i, row in enumerate(batch.rows):
        if topic is None or batch.topic(i) == topic:
            one = LogRow(MESSAGE, batch.offset(i), row.size, message=message.decode(batch.record(i)))
            yield row_text(one, redact=redact)
