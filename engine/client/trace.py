"""What Apache's clients write of a message's life into the trace topic: records as text, and back. No I/O.

A trace message holds records, each ended by U+0002, their fields separated by U+0001; its keys are the ids and keys of
the messages that it tells of, so that they are what it is queried by. Source: TraceDataEncoder, TraceContext,
TraceBean, AsyncTraceDispatcher.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import replace

from engine.dataclass import dataclass

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Apache's default (traceTopic of clients, msgTraceTopicName of brokers)."""
_FIELD, _END = "\x01", "\x02"
_NONE = "null"
"""What Java writes for a message without tags or keys."""
_AFTER_WITH_GROUP, _AFTER_WITHOUT = 9, 6


class TraceKind(enum.Enum):
    """What a record tells of: a send, consuming that begins or has ended, a transaction that was settled."""

    SENT = "Pub"
    CONSUMING = "SubBefore"
    CONSUMED = "SubAfter"
    SETTLED = "EndTransaction"


class TracedType(enum.IntEnum):
    """How a message was sent (MessageType)."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3


class ConsumeCode(enum.IntEnum):
    """How consuming ended (ConsumeReturnType)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    NOTHING_RETURNED = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One record; fields that its kind has not are empty.

    Attributes:
        id: the producer's (UNIQ_KEY). `offset_id`: the broker's.
        time_ms: when it began, ms since 1970; 0: not told.
        cost_ms: how long it took.
        request_id: joins CONSUMING and CONSUMED.
        retries: how often consuming had failed before.
        code: of ConsumeCode; `message_type`: of TracedType.
        state: of the transaction, as Java names it (COMMIT_MESSAGE …); `by_check`: the broker had asked for it.
    """

    kind: TraceKind
    id: str
    group: str = ""
    time_ms: int = 0
    region: str = ""
    topic: str = ""
    tags: str | None = None
    keys: str | None = None
    store_host: str = ""
    body_size: int = 0
    cost_ms: int = 0
    message_type: int = TracedType.NORMAL
    offset_id: str = ""
    success: bool = True
    request_id: str = ""
    retries: int = 0
    code: int = ConsumeCode.SUCCESS
    transaction_id: str = ""
    state: str = ""
    by_check: bool = False


def encode(record: TraceRecord) -> str:
    """The text of a record, as Java's client writes it."""
    tags, keys = record.tags or _NONE, record.keys or _NONE
    begin = (record.kind.value, record.time_ms, record.region, record.group)
    fields: tuple[object, ...]
    match record.kind:
        case TraceKind.SENT:
            fields = (*begin, record.topic, record.id, tags, keys, record.store_host, record.body_size)
            fields += (record.cost_ms, int(record.message_type), record.offset_id, _java(record.success))
        case TraceKind.CONSUMING:
            fields = (*begin, record.request_id, record.id, record.retries, keys)
        case TraceKind.CONSUMED:
            fields = (record.kind.value, record.request_id, record.id, record.cost_ms, _java(record.success), keys)
            fields += (int(record.code), record.time_ms, record.group)
        case TraceKind.SETTLED:
            fields = (*begin, record.topic, record.id, tags, keys, record.store_host, int(record.message_type))
            fields += (record.transaction_id, record.state, _java(record.by_check))
    return _FIELD.join(map(str, fields)) + _END


def keys_of(records: Iterable[TraceRecord]) -> tuple[str, ...]:
    """The keys of a trace message of these records, each once."""
    return tuple(
        dict.fromkeys(word for record in records for word in (record.id, *(record.keys or "").split()) if word)
    )


def decode(text: str) -> Iterator[TraceRecord]:
    """The records of a trace message; what is none is passed over."""
    for line in text.split(_END):
        try:
            yield _read(line.split(_FIELD))
        except (IndexError, ValueError):
            continue


def _read(fields: list[str]) -> TraceRecord:
    """Raises IndexError, ValueError: no record."""
    kind = TraceKind(fields[0])
    match kind:
        case TraceKind.SENT:
            has_offset_id = len(fields) > 13  # clients before 4.4 give none
            return replace(
                _of_message(kind, fields),
                body_size=int(fields[9]),
                cost_ms=int(fields[10]),
                message_type=int(fields[11]),
                offset_id=fields[12] if has_offset_id else "",
                success=fields[13 if has_offset_id else 12] == "true",
            )
        case TraceKind.SETTLED:
            return replace(
                _of_message(kind, fields),
                message_type=int(fields[9]),
                transaction_id=fields[10],
                state=fields[11],
                by_check=fields[12] == "true",
            )
        case TraceKind.CONSUMING:
            return TraceRecord(
                kind,
                time_ms=int(fields[1]),
                region=fields[2],
                group=fields[3],
                request_id=fields[4],
                id=fields[5],
                retries=int(fields[6]),
                keys=_text(fields[7]),
            )
        case TraceKind.CONSUMED:
            has_group = len(fields) >= _AFTER_WITH_GROUP
            return TraceRecord(
                kind,
                request_id=fields[1],
                id=fields[2],
                cost_ms=int(fields[3]),
                success=fields[4] == "true",
                keys=_text(fields[5]),
                code=int(fields[6]) if len(fields) > _AFTER_WITHOUT else ConsumeCode.SUCCESS,
                time_ms=int(fields[7]) if has_group else 0,
                group=fields[8] if has_group else "",
            )


def _of_message(kind: TraceKind, fields: list[str]) -> TraceRecord:
    """What records of a send and of a transaction begin with."""
    return TraceRecord(
        kind,
        time_ms=int(fields[1]),
        region=fields[2],
        group=fields[3],
        topic=fields[4],
        id=fields[5],
        tags=_text(fields[6]),
        keys=_text(fields[7]),
        store_host=fields[8],
    )


def _text(word: str) -> str | None:
    return None if word in ("", _NONE) else word


def _java(value: bool) -> str:
    return "true" if value else "false"
