"""Stores as DataFrames: what every analysing job begins with. Times in ms, offsets physical.

What a job asks of the data source is asked of Spark, too: an option narrows what is read, a filter decides what counts.
Damaged ranges come as rows unless they fail the job. `Watch` counts them while the job's own action runs, so
that nothing is read twice, and nothing is passed over in silence.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.backup.secret import KeySource
from engine.errors import InvalidArgument
from engine.pipeline.known import known_names
from engine.pipeline.options import FAIL, MARK, SKIP
from engine.pipeline.schema import COLUMNS
from engine.pipeline.source import NAME
from engine.pipeline.spark import SPLIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, Observation, SparkSession

    from engine.pipeline.stores import StoreRef

PLACE = ("store", "physical_offset", "size", "damage")
"""Columns that every frame has: where a row lies, and whether it is a record."""


class Watch:
    """What a job passed over: damaged places, their bytes and the first; known when its action has run.

    Args:
        observation: counts while the action runs.
        frame: what it counts in, with `counts`.
    """

    def __init__(self, observation: Observation, frame: DataFrame, counts: Sequence[Column]) -> None:
        self._observation = observation
        self._frame = frame
        self._counts = counts
        self._found: dict[str, Any] | None = None

    def facts(self) -> dict[str, int]:
        """`damaged_places` and `damaged_bytes`."""
        seen = self._seen()
        return {"damaged_places": seen["places"] or 0, "damaged_bytes": seen["bytes"] or 0}

    def notes(self) -> tuple[str, ...]:
        """One sentence, none where nothing is damaged."""
        facts = self.facts()
        if not facts["damaged_places"]:
            return ()
        store, _, offset = str(self._seen()["first"]).rpartition("@")
        return (
            f"{facts['damaged_places']} damaged places of the log ({facts['damaged_bytes']} bytes) were skipped, "
            f"the first in {store} at {int(offset)}: rstore pipeline verify lists them",
        )

    def _seen(self) -> dict[str, Any]:
        if self._found is None:
            self._found = observed(self._observation, self._frame, self._counts)
        return self._found


def observed(observation: Observation, frame: DataFrame, counts: Sequence[Column]) -> dict[str, Any]:
    """What was counted while an action ran; counted now where Spark had left the frame out of its plan, as empty."""
    from py4j.protocol import Py4JJavaError

    try:
        values = observation.get
    except Py4JJavaError:
        values = {}
    if values:
        return dict(values)
    (row,) = frame.agg(*counts).collect()
    return dict(row.asDict())


def read(
    spark: SparkSession,
    stores: Sequence[StoreRef],
    *,
    columns: Sequence[str] = (),
    topic: str | None = None,
    topics: Sequence[str] = (),
    start_time: int | None = None,
    end_time: int | None = None,
    start_offset: int | None = None,
    on_damage: str = SKIP,
    decompress: bool = False,
    split_bytes: int | None = None,
) -> DataFrame:
    """The logs of some stores, a row a record; with SKIP and MARK a row a damaged range, too (see `watched`).

    Args:
        spark: the session, which knows the data source.
        stores: whose logs.
        columns: names (default: all); those of `PLACE`, and what is filtered by, come in any case.
        topic: only its records.
        topics: the same for several.
        start_time: only records stored at it (ms) or later.
        end_time: only records stored before it (ms).
        start_offset: only records from this physical offset on.
        on_damage: FAIL, MARK or SKIP.
        decompress: bodies as their producers had them.
        split_bytes: about so many bytes of log a task (default: the session's, else the data source's own).

    Raises:
        InvalidArgument: no such column, or no such way to treat damage.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    if on_damage not in (FAIL, MARK, SKIP):
        raise InvalidArgument(f"onDamage = {on_damage} is invalid", hint=f"{FAIL}, {MARK} or {SKIP}")
    for store in stores:
        if "," in f"{store.name}{store.root}":
            raise InvalidArgument(
                "the data source can't read a store with a comma in its name or path", path=store.root
            )
    # else the filter alone: a topic that was deleted is in the log only, and the data source knows it not
    names = [*topics, *([] if topic is None else [topic])]
    known = known_names(stores).topics if names else ()
    plain = names and all("," not in name and name == name.strip() and name in known for name in names)
    wanted = _columns(columns, by_topic=bool(names), timed=start_time is not None or end_time is not None)
    options = {
        "columns": ",".join(wanted),
        "onDamage": FAIL if on_damage == FAIL else MARK,
        "decompress": str(decompress).lower(),
        "topic": ",".join(names) if plain else None,
        "startTime": start_time,
        "endTime": end_time,
        "startOffset": start_offset,
        "splitBytes": split_bytes or spark.conf.get(SPLIT_BYTES, None),
        **_repository_options(stores),
        "config": next((store.config_file for store in stores), None),  # one for all of them: find_stores
    }
    reader = spark.read.format(NAME)
    for key, value in options.items():
        if value is not None:
            reader = reader.option(key, str(value))
    frame = reader.load(",".join(map(_place, stores)))
    for asked, condition in (
        (names or None, F.col("topic").isin(names)),
        (start_time, F.col("store_timestamp") >= F.lit(start_time)),
        (end_time, F.col("store_timestamp") < F.lit(end_time)),
    ):
        if asked is not None:
            frame = frame.where(condition | F.col("damage").isNotNull())
    return frame if start_offset is None else frame.where(F.col("physical_offset") >= start_offset)


def _place(store: StoreRef) -> str:
    """As `find_stores` gives the store this very name."""
    if store.snapshot is not None:
        place = store.snapshot.place
        return place if store.name == store.snapshot.store else f"{store.name}={place}"
    path = os.path.abspath(store.root)
    return path if store.name == os.path.basename(os.path.realpath(path)) else f"{store.name}={path}"


def _repository_options(stores: Sequence[StoreRef]) -> dict[str, str | None]:
    """Where keys of repositories come from, and whether archives are read: the same for all stores of a job."""
    snapshots = [store.snapshot for store in stores if store.snapshot is not None]
    source = next((one.key for one in snapshots), KeySource())
    archived = "true" if any(one.archived for one in snapshots) else None
    return {"keyFile": source.file, "keyCommand": source.command, "archived": archived}


def watched(frame: DataFrame) -> tuple[DataFrame, Watch]:
    """The records of a frame, and who counts what is none while the next action runs."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    observation = Observation()
    damaged = F.col("damage").isNotNull()
    place = F.concat(F.col("store"), F.lit("@"), F.lpad(F.col("physical_offset").cast("string"), 20, "0"))
    counts = (
        F.count("damage").alias("places"),
        F.sum(F.when(damaged, F.col("size").cast("long"))).alias("bytes"),
        F.min(F.when(damaged, place)).alias("first"),
    )
    return frame.observe(observation, *counts).where(~damaged), Watch(observation, frame, counts)


def property_of(name: str) -> Column:
    """A property's value, null without it."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.try_element_at("properties", F.lit(name))


def first_line(error: BaseException) -> str:
    """What Spark says of an expression or a path, without its plans and stacks."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _columns(columns: Sequence[str], *, by_topic: bool, timed: bool) -> list[str]:
    for name in columns:
        if name not in COLUMNS:
            raise InvalidArgument(f"no such column: {name}", hint="there are " + ", ".join(COLUMNS))
    more = {*PLACE, *(["topic"] if by_topic else []), *(["store_timestamp"] if timed else [])}
    return [name for name in COLUMNS if not columns or name in columns or name in more]
