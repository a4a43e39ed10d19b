"""Sweeps that `make test` samples and `make sweep` runs whole (RSTORE_WIDE=1, `-m wide`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")

WIDE = os.environ.get("RSTORE_WIDE", "") not in ("", "0")


def sample(values: Iterable[T], every: int, first: int = 0) -> list[T]:
    """Every so many of them, from number `first` on (modulo `every`); all of them in a wide run.

    A test that uses it is marked `wide`. Give the samples of cases that differ in little a `first` each: together they
    see everything then.
    """
    found = list(values)
    return found if WIDE else found[first % every :: every]


def sample_of_each(values: Iterable[T], kind: Callable[[T], Hashable], every: int, first: int = 0) -> list[T]:
    """As `sample`, of each kind by itself: no kind is without an example, however few it has."""
    kinds: dict[Hashable, list[T]] = {}
    for one in values:
        kinds.setdefault(kind(one), []).append(one)
    if WIDE:
        return [one for some in kinds.values() for one in some]
    return [one for some in kinds.values() for one in some[first % min(every, len(some)) :: every]]


def examples(count: int) -> int:
    """How many examples of hypothesis: a third of these, all of them in a wide run."""
    return count if WIDE else count // 3
