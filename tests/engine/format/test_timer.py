"""What RocketMQ 5 keeps beside the log: timer log, wheel, timercheck, epochs, the checkpoint's further fields."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import FormatError
from engine.format import checkpoint, epoch_file, timer_check, timer_log, timer_wheel
from engine.format.checkpoint import Checkpoint, ReplicaOffsets
from engine.format.epoch_file import EpochEntry
from engine.format.record import BLANK_MAGIC
from engine.format.timer_check import TimerCheck
from engine.format.timer_log import UNIT_SIZE, TimerUnit
from engine.format.timer_wheel import TimerSlot
from tests.support import strategies

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
UNITS = st.builds(
    TimerUnit,
    st.sampled_from([52, 0, 51, -1]),
    st.one_of(st.integers(-2, 600), strategies.longs),
    st.one_of(st.integers(0, 16), st.integers(0, (1 << 32) - 1)),
    st.one_of(st.just(1_700_000_000_000), strategies.longs),
    INTS,
    strategies.longs,
    st.one_of(st.integers(-1, 2), INTS),
    INTS,
    strategies.longs,
)
SOUND = TimerUnit(52, -1, 1, 1_700_000_000_000, 1000, 0, 100, 5)


@given(UNITS)
def test_a_unit_both_ways(unit: TimerUnit) -> None:
    assert timer_log.decode(unit.encode()) == unit
    assert TimerUnit(*timer_log.decode_many(unit.encode())[0].item()) == unit


@given(st.lists(UNITS, min_size=1, max_size=12), st.sampled_from([0, 52, 520, 1 << 40]))
def test_one_rule_in_two_ways(units: list[TimerUnit], offset: int) -> None:
    """What is no unit is told of many at once, and in words of one."""
    many = timer_log.decode_many(b"".join(unit.encode() for unit in units))
    told = [timer_log.fault(unit, offset + i * UNIT_SIZE) is None for i, unit in enumerate(units)]
    assert timer_log.sound(many, offset).tolist() == told
    times = timer_log.due_times(many).tolist()
    assert all(time == unit.due_time for time, unit, right in zip(times, units, told, strict=True) if right)


def test_random_bytes_are_judged_the_same() -> None:
    for seed in range(50):
        data = random.Random(seed).randbytes(UNIT_SIZE * 40)
        told = [timer_log.fault(timer_log.decode(data, at), 5200 + at) is None for at in range(0, len(data), UNIT_SIZE)]
        assert timer_log.sound(timer_log.decode_many(data), 5200).tolist() == told


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        (TimerUnit(51, -1, 1, 5, 5, 0, 1, 0), "unit size 51 is not 52"),
        (TimerUnit(52, -1, 16, 5, 5, 0, 1, 0), "invalid magic 0x00000010"),
        (TimerUnit(52, 104, 1, 5, 5, 0, 1, 0), "previous unit 104 is not before it"),
        (TimerUnit(52, 53, 1, 5, 5, 0, 1, 0), "previous unit 53 is not before it"),
        (TimerUnit(52, -2, 1, 5, 5, 0, 1, 0), "previous unit -2 is not before it"),
        (TimerUnit(52, -1, 1, 5, -6, 0, 1, 0), "invalid due time: 5 + -6"),
        (TimerUnit(52, -1, 1, (1 << 63) - 1, 1, 0, 1, 0), "invalid due time: 9223372036854775807 + 1"),
        (TimerUnit(52, -1, 1, 5, 5, -1, 1, 0), "invalid physical offset -1"),
        (TimerUnit(52, -1, 1, 5, 5, 0, 0, 0), "invalid message size 0"),
    ],
)
def test_what_is_no_unit(unit: TimerUnit, why: str) -> None:
    assert timer_log.fault(unit, 104) == why
    assert timer_log.fault(SOUND, 0) is None


def test_what_a_magic_says() -> None:
    kinds = {magic: TimerUnit(52, -1, magic, 5, 5, 0, 1, 0) for magic in (1, 3, 5, 7)}
    assert {m: (unit.rolls, unit.deletes) for m, unit in kinds.items()} == {
        1: (False, False), 3: (True, False), 5: (False, True), 7: (True, False),
    }  # fmt: skip


def test_how_many_units_a_file_takes() -> None:
    """TimerLog#append: a unit and 16 bytes more must fit. 100 MiB is the default."""
    assert [timer_log.units_of_file(size) for size in (0, 15, 16, 67, 68, 5200)] == [0, 0, 0, 0, 1, 99]
    for size in (5200, 104857600):
        last = (timer_log.units_of_file(size) - 1) * UNIT_SIZE
        assert last == size - (size - 16) % UNIT_SIZE - 16 - UNIT_SIZE  # TimerLog#getOffsetForLastUnit


def test_a_blank() -> None:
    raw = bytes.fromhex("00000034" + "0000000000000000" + "cbd43194")
    blank = timer_log.decode_blank(raw + bytes(36))
    assert blank is not None
    assert (blank.size, blank.magic) == (52, BLANK_MAGIC)
    assert timer_log.decode_blank(raw[:15]) is timer_log.decode_blank(bytes(16)) is None


@given(st.builds(TimerSlot, strategies.longs, strategies.longs, strategies.longs, INTS, INTS))
def test_a_slot_both_ways(slot: TimerSlot) -> None:
    assert timer_wheel.decode(slot.encode()) == slot
    assert TimerSlot(*timer_wheel.decode_many(slot.encode())[0].item()) == slot


def test_what_is_no_slot() -> None:
    due = 1795485480
    assert timer_wheel.slot_of(due) == 439080
    assert timer_wheel.fault(TimerSlot(due, 260, 468, 5), 439080) is None
    assert timer_wheel.fault(TimerSlot(due, 260, 468, 5), 0) == f"due time {due} belongs into slot 439080"
    assert timer_wheel.fault(TimerSlot(-1, 0, 0, 5), 0) == "invalid due time -1"
    assert timer_wheel.fault(TimerSlot(due, 468, 260, 5), 439080) == "invalid first and last unit: 468, 260"
    assert timer_wheel.fault(TimerSlot(due, -1, 260, 5), 439080) == "invalid first and last unit: -1, 260"
    assert timer_wheel.FILE_SIZE == 38_707_200


@given(st.builds(TimerCheck, *[st.integers(0, (1 << 63) - 1)] * 4, *[strategies.longs] * 3))
def test_the_timers_checkpoint_both_ways(check: TimerCheck) -> None:
    assert timer_check.decode(check.encode() + bytes(4040)) == check


def test_what_is_no_timer_checkpoint() -> None:
    for data in (b"", bytes(55), TimerCheck(-1).encode(), TimerCheck(0, 0, -5).encode()):
        with pytest.raises(FormatError):
            timer_check.decode(data)


@given(st.lists(st.builds(EpochEntry, st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 63) - 1)), max_size=9))
def test_epochs_both_ways(entries: list[EpochEntry]) -> None:
    assert epoch_file.decode(epoch_file.encode(tuple(entries))) == tuple(entries)


@pytest.mark.parametrize(
    ("text", "why", "offset"),
    [
        (b"", "line 1 of the epoch file is not the number of epochs", 0),
        (b"1\n", "line 2 of the epoch file is not the CRC", 2),
        (b"1\nx\n1-0\n", "line 2 of the epoch file is not the CRC", 2),
        (b"1\n1725254278\n", "has 0 epochs instead of 1", None),
        (b"2\n1725254278\n1-0\n", "has 1 epochs instead of 2", None),
        (b"1\n1725254279\n1-0\n", "CRC mismatch in the epoch file: 1725254278 instead of 1725254279", None),
        (b"1\n1725254278\n1-0-0\n", "a line of the epoch file is no EPOCH-OFFSET", 13),
        (b"1\n0\n\n", "a line of the epoch file is no EPOCH-OFFSET", 4),
        (b"1\n0\n2147483648-0\n", "a line of the epoch file is no EPOCH-OFFSET", 4),
        (b"1\n0\n1-9223372036854775808\n", "a line of the epoch file is no EPOCH-OFFSET", 4),
        (b"9" * 200, "line 1 of the epoch file is not the number", 0),
        (b"1\n0\n1-\xff\n", "the epoch file is not text", 6),
        (bytes(1 << 21), "has more than 1048576 bytes", None),
    ],
)
def test_what_is_no_epoch_file(text: bytes, why: str, offset: int | None) -> None:
    with pytest.raises(FormatError, match=why) as raised:
        epoch_file.decode(text)
    assert raised.value.offset == offset


def test_a_crc_of_0_is_not_compared_and_the_last_line_may_have_no_end() -> None:
    assert epoch_file.decode(b"1\n0\n7-7000") == (EpochEntry(7, 7000),)
    assert epoch_file.decode(b"2\n773307083\n7-7000\n8-8000\n") == (EpochEntry(7, 7000), EpochEntry(8, 8000))


def test_what_rocketmq_5_adds_to_the_checkpoint() -> None:
    data = Checkpoint(1, 2, 3).encode() + ReplicaOffsets(4, 5).encode()
    assert checkpoint.decode_replica_offsets(data + bytes(4056)) == ReplicaOffsets(4, 5)
    assert checkpoint.decode_replica_offsets(data[:-1]) is None
    assert checkpoint.decode(data) == Checkpoint(1, 2, 3)


def test_too_few_bytes() -> None:
    with pytest.raises(FormatError, match="51 are left"):
        timer_log.decode(bytes(51))
    with pytest.raises(FormatError, match="31 are left"):
        timer_wheel.decode(bytes(31))
    assert len(timer_log.decode_many(bytes(103))) == len(timer_wheel.decode_many(bytes(63))) == 1
    assert timer_log.unit_dtype().itemsize == UNIT_SIZE
    assert np.dtype(timer_wheel.slot_dtype()).itemsize == timer_wheel.SLOT_SIZE
