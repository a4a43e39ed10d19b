"""A short run of every fuzz target (the long one: `make fuzz`), and proof that the fuzzer notices what it should."""

from __future__ import annotations

import random
import struct

import pytest

from tests.fuzz.mutator import mutate
from tests.fuzz.run import Found, Outcome, feed, measure, run
from tests.fuzz.targets import Target, targets
from tests.support.wide import WIDE

INPUTS = 4000 if WIDE else 1600


@pytest.mark.wide
@pytest.mark.parametrize("name", targets())
def test_mutated_inputs_give_a_value_or_a_typed_error(name: str) -> None:
    outcome = run(targets()[name], INPUTS, seed=1, measure_every=200)
    assert outcome.measured == INPUTS // 200
    assert outcome.values + outcome.errors.total() > INPUTS
    assert outcome.values > INPUTS // 100


@pytest.mark.parametrize("name", targets())
def test_every_target_takes_its_seeds(name: str) -> None:
    target = targets()[name]
    outcome = Outcome()
    for data in target.seeds:
        feed(target, data, outcome)
    assert outcome.values >= 1


def test_mutations_are_the_same_for_a_seed() -> None:
    seeds = [b"some bytes to start from", b"and others"]
    first, again, other = (
        [mutate(seeds, numbers) for _ in range(100)]
        for numbers in (random.Random(1), random.Random(1), random.Random(2))
    )
    assert first == again != other
    assert len(set(first)) > 80


def test_an_untyped_exception_is_found() -> None:
    target = Target("careless", lambda data: struct.unpack(">q", data), (bytes(8),))
    with pytest.raises(Found, match="careless: error"):
        run(target, 100, seed=0)


def test_a_large_allocation_is_found() -> None:
    target = Target("greedy", lambda data: bytes(int.from_bytes(data[:3], "big")), (b"\x7f\xff\xff",))
    with pytest.raises(Found, match="bytes held"):
        measure(target, b"\x7f\xff\xff", Outcome())
