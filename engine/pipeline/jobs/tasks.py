"""A function over splits, on executors: answers come back in order, and the engine's errors as what they are.

An engine error is an answer, too: run again, the same bytes give the same error, so Spark needn't try four times, and
the driver raises it as it was raised. Anything else is Spark's to report.

Small splits share a task, so that a fleet of small stores is not a thousand tasks; none waits for another's task.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.pipeline.splits import SPLIT_BYTES
from engine.pipeline.worker import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from engine.pipeline.splits import Split

_Work = TypeVar("_Work")
_Answer = TypeVar("_Answer")

TASKS_A_CORE = 2
"""So many tasks at least, as long as there are splits: cores that are done early find something left. A task costs
Spark some 10 ms, as much as `verify` takes for 100 MiB."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An engine error as a task's answer."""

    error: RStoreError


def grouped(splits: Sequence[Split], cores: int) -> list[list[Split]]:
    """Splits that one task reads one after the other, in order."""
    total = sum(split.end - split.start for split in splits)
    size = min(SPLIT_BYTES, total // (TASKS_A_CORE * cores))
    groups: list[list[Split]] = []
    room = 0
    for split in splits:
        length = split.end - split.start
        if length > room:
            groups.append([])
            room = size
        groups[-1].append(split)
        room -= length
    return groups


def joined(group: Sequence[Split]) -> list[Split]:
    """A task's splits with neighbours in one: each boundary between two costs MiBs of reading, and tells nothing new.

    For jobs whose answer does not depend on where splits begin, and that hold no more of a longer one.
    """
    splits: list[Split] = []
    for split in group:
        last = splits[-1] if splits else None
        if last is not None and (last.store, last.segment, last.end) == (split.store, split.segment, split.start):
            splits[-1] = replace(last, end=split.end)
        else:
            splits.append(split)
    return splits


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at the same time, as far as Spark knows by now."""
    return max(1, spark.sparkContext.defaultParallelism)


def run_groups(
    spark: SparkSession, groups: Sequence[Sequence[_Work]], function: Callable[[_Work], _Answer]
) -> list[_Answer]:
    """What `function` (of a module) makes of each piece of work, in order; a group a task.

    Raises:
        RStoreError: what it raised, the first in the order of the work.
    """
    if not groups:
        return []
    answers = spark.sparkContext.parallelize(groups, len(groups)).flatMap(partial(_each, function)).collect()
    return list(unfailed(answers))


def unfailed(answers: Iterable[_Answer | Failed]) -> Iterator[_Answer]:
    """The answers. Raises RStoreError: the first that is one."""
    for answer in answers:
        if isinstance(answer, Failed):
            raise answer.error
        yield answer


def _each(function: Callable[[_Work], _Answer], group: Sequence[_Work]) -> Iterator[_Answer | Failed]:
    for work in group:
        try:
            yield function(work)
        except RStoreError as error:
            yield Failed(error)
            return
    settle()
