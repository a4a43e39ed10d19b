"""`pipeline grep`: messages by predicate. One pass over the logs finds the first of them and counts all."""

from __future__ import annotations

import contextlib
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format import hosts, properties
from engine.format.message import make_msg_id
from engine.pipeline import frames
from engine.pipeline.known import demand_known
from engine.pipeline.options import SKIP
from engine.pipeline.result import JobResult, Table
from engine.pipeline.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from engine.pipeline.stores import StoreRef

MOST = 100_000
"""Messages that are shown at most: more of them are a table of their own (export)."""
_SHOWN = ("store", "physical_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "tags", "keys")


@dataclass(frozen=True, slots=True)
class GrepOptions:
    """What is looked for: all of it must hold.

    Attributes:
        topic, queue_id, tag: equal to these.
        key: the UNIQ_KEY, or a word of KEYS.
        properties: names and their values.
        body: text that the body holds, as UTF-8.
        body_regex: Python's regular expression that matches somewhere in the body's bytes (the pattern as UTF-8).
        start_time, end_time: stored at the one (ms) or later, and before the other.
        min_size, max_size: bytes of the record, both inclusive.
        where: a SQL expression over the columns, as Spark reads it.
        limit: messages that are shown, those that lie first in the logs; 0 to MOST. All are counted.
        columns: further columns that are shown.
        excerpt: characters of the body that are shown; 0: none.
        decompress: look into bodies, and show them, as their producers had them.
        on_damage: FAIL, or SKIP: what is damaged is counted.
        split_bytes: about this many bytes of log a task (default: the data source's own).
    """

    topic: str | None = None
    queue_id: int | None = None
    tag: str | None = None
    key: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    body_regex: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    where: str | None = None
    limit: int = 100
    columns: tuple[str, ...] = ()
    excerpt: int = 80
    decompress: bool = False
    on_damage: str = SKIP
    split_bytes: int | None = None


def run(spark: SparkSession, stores: Sequence[StoreRef], options: GrepOptions) -> JobResult:
    """The table `messages`; facts: `matches`, `bytes` (of their records), `shown`.

    Raises:
        InvalidArgument: a pattern, an expression, a column or a number that makes no sense.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    _check(options)
    read = frames.read(
        spark,
        stores,
        columns=_wanted(options),
        topic=options.topic,
        start_time=options.start_time,
        end_time=options.end_time,
        on_damage=options.on_damage,
        split_bytes=options.split_bytes,
        decompress=options.decompress,
    )
    records, watch = frames.watched(read)
    matches = _matching(records, options)
    count = Observation()
    sums = (F.count(F.lit(1)).alias("matches"), F.sum(F.col("size").cast("long")).alias("bytes"))
    counted = matches.observe(count, *sums)
    with _blaming(options.where):
        if options.limit:
            shown = counted.select(*_selected(options)).orderBy("store", "physical_offset").limit(options.limit)
            rows = shown.collect()
        else:  # an empty limit would have Spark read nothing
            rows = counted.agg(F.count(F.lit(1))).collect()[:0]
    counts = frames.observed(count, matches, sums)
    if options.topic is not None and not counts["matches"]:
        demand_known(stores, [options.topic])
    return JobResult(
        "grep",
        {"matches": counts["matches"], "bytes": counts["bytes"] or 0, "shown": len(rows), **watch.facts()},
        (_table(rows, options),),
        notes=watch.notes(),
    )


def _check(options: GrepOptions) -> None:
    if not 0 <= options.limit <= MOST:
        raise InvalidArgument(
            f"--limit {options.limit} is invalid: 0 to {MOST}", hint="rstore pipeline export writes any number"
        )
    if options.excerpt < 0:
        raise InvalidArgument(f"--excerpt {options.excerpt} is invalid")
    if options.body_regex is not None:
        try:
            re.compile(options.body_regex.encode())
        except re.error as error:
            raise InvalidArgument(f"invalid regular expression {options.body_regex}: {error}") from None


def _wanted(options: GrepOptions) -> list[str]:
    """The columns that have to be read: the body only where somebody looks into it."""
    looked_into = options.excerpt or options.body is not None or options.body_regex is not None
    named = "body" in options.columns or re.search(r"\bbody\b", options.where or "", re.IGNORECASE)
    for name in options.columns:
        if name not in COLUMNS:
            raise InvalidArgument(f"no such column: {name}", hint="there are " + ", ".join(COLUMNS))
    return [name for name in COLUMNS if name != "body" or looked_into or named]


def _matching(records: DataFrame, options: GrepOptions) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    for condition in _conditions(options):
        records = records.where(condition)
    if options.where is not None:
        with _blaming(options.where):
            records = records.where(options.where)
    if options.body is not None:
        records = records.where(F.contains(F.col("body"), F.lit(options.body.encode())))
    if options.body_regex is not None:
        records = records.where(_searcher(options.body_regex.encode())(F.col("body")))
    return records


@contextlib.contextmanager
def _blaming(where: str | None) -> Iterator[None]:
    """What Spark finds wrong with an expression, before it runs or on some row, is the expression's fault."""
    from pyspark import errors

    try:
        yield
    except (
        errors.AnalysisException,
        errors.ArithmeticException,
        errors.ArrayIndexOutOfBoundsException,
        errors.DateTimeException,
        errors.NumberFormatException,
        errors.ParseException,
    ) as error:
        if where is None:
            raise
        raise InvalidArgument(f"where {where}: {frames.first_line(error)}") from None


def _conditions(options: GrepOptions) -> Iterator[Column]:
    from pyspark.sql import functions as F  # noqa: N812

    if options.queue_id is not None:
        yield F.col("queue_id") == options.queue_id
    if options.tag is not None:
        yield F.col("tags") == options.tag
    if options.key is not None:
        yield (frames.property_of(properties.UNIQ_KEY) == options.key) | F.array_contains("keys", options.key)
    for name, value in options.properties:
        yield frames.property_of(name) == value
    if options.min_size is not None:
        yield F.col("size") >= options.min_size
    if options.max_size is not None:
        yield F.col("size") <= options.max_size


def _searcher(pattern: bytes) -> Callable[[Column], Column]:
    from pyspark.sql import functions as F  # noqa: N812

    def search(body: bytes | None) -> bool:
        return body is not None and re.search(pattern, body) is not None  # re keeps what it has compiled

    made: Callable[[Column], Column] = F.udf(search, "boolean", useArrow=False)
    return made


def _selected(options: GrepOptions) -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812

    columns = [F.col(name) for name in (*_SHOWN, "store_host")]
    if options.excerpt:
        columns.append(F.substring("body", 1, 4 * options.excerpt).alias("excerpt"))  # UTF-8: 4 bytes a character
    return columns + [_in_order(name).alias(f"asked_{name}") for name in options.columns]


def _in_order(name: str) -> Column:
    """A column; a map as its entries, which a Java HashMap would bring in another order."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.map_entries(name) if COLUMNS[name].startswith("map") else F.col(name)


def _table(rows: list[Row], options: GrepOptions) -> Table:
    columns = (
        *("store", "physical_offset", "topic", "queue_id", "queue_offset", "msg_id", "store_timestamp", "tags", "keys"),
        *(("body",) if options.excerpt else ()),
    )
    more = tuple(name for name in options.columns if name not in columns)
    return Table(
        "messages",
        "Messages",
        columns + more,
        tuple(
            (
                *(row[name] for name in columns[:5]),
                make_msg_id(hosts.parse(row["store_host"]), row["physical_offset"]),
                row["store_timestamp"],
                row["tags"],
                " ".join(row["keys"] or ()),
                *((_text(row["excerpt"], options.excerpt),) if options.excerpt else ()),
                *(_plain(name, row[f"asked_{name}"]) for name in more),
            )
            for row in rows
        ),
    )


def _text(data: bytes | None, most: int) -> str:
    """The beginning of a body, fit for a line."""
    text = bytes(data or b"").decode("utf-8", "replace")[:most]
    return "".join(c if c.isprintable() else "·" for c in text)


def _plain(name: str, value: Any) -> Any:
    """A value of Spark's as a table has it."""
    if value is not None and COLUMNS[name].startswith("map"):
        value = dict(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, datetime):  # Spark gives it in this machine's time
        return value.astimezone(UTC).isoformat()
    return str(value)
