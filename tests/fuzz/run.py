"""Feeds mutated inputs to one target and says what came out."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.errors import RStoreError
from tests.fuzz.mutator import mutate
from tests.fuzz.targets import Target, rng

FREE_BYTES = 64 * 1024
"""What a decoder may hold beside its share for each byte of input: an error's text, a dict, a few objects."""


@dataclass
class Outcome:
    """What a run met: values, typed errors by class, and how many inputs had their memory measured."""

    values: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    measured: int = 0


class Found(AssertionError):
    """An input that a decoder doesn't take as it should; the message holds all that is needed to try it again."""


def feed(target: Target, data: bytes, outcome: Outcome) -> None:
    """Decode one input; raises Found when it ends in anything but a value or a typed error."""
    try:
        target.decode(data)
    except RStoreError as error:
        text = str(error)
        if "\n" in text:
            raise Found(f"{target.name}: an error of more than one line for {data.hex()}: {text!r}") from error
        outcome.errors[type(error).__name__] += 1
    except Exception as error:
        raise Found(f"{target.name}: {error!r} for {data.hex()}") from error
    else:
        outcome.values += 1


def measure(target: Target, data: bytes, outcome: Outcome) -> None:
    """As `feed`, and the most memory held meanwhile must be a small multiple of the input."""
    tracemalloc.start()
    try:
        feed(target, data, outcome)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    outcome.measured += 1
    allowed = FREE_BYTES + target.bytes_per_byte * len(data)
    if peak > allowed:
        raise Found(f"{target.name}: {peak} bytes held for an input of {len(data)} (at most {allowed}): {data.hex()}")


def run(
    target: Target,
    inputs: int,
    seed: int,
    part: int = 0,
    *,
    measure_every: int = 500,
    progress: Callable[[int], None] = lambda done: None,
) -> Outcome:
    """Feed `inputs` mutations, the same for the same seed and part; one in `measure_every` has its memory measured."""
    numbers = rng(target.name, seed, part)
    outcome = Outcome()
    for data in target.seeds:
        feed(target, data, outcome)
    feed(target, b"", outcome)
    gc.collect()
    for done in range(inputs):
        (measure if done % measure_every == 0 else feed)(target, mutate(target.seeds, numbers), outcome)
        if done % 10_000 == 0:
            progress(done)
    progress(inputs)
    return outcome
