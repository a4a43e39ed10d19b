"""The flags: Apache's bits, and why each is set."""

from __future__ import annotations

import pytest

from engine.errors import DiskFull, RStoreError
from engine.services.running_flags import Flag, RunningFlags


def test_at_first_all_is_well() -> None:
    flags = RunningFlags()
    assert (flags.flag_bits, flags.readable, flags.writeable, flags.queue_writeable) == (0, True, True, True)
    assert flags.errors == ()
    assert flags.error is None


@pytest.mark.parametrize(
    ("flag", "bit", "readable", "writeable", "queue_writeable"),
    [
        (Flag.NOT_READABLE, 1, False, True, True),
        (Flag.NOT_WRITEABLE, 2, True, False, False),
        (Flag.WRITE_LOGICS_QUEUE_ERROR, 4, True, False, False),
        (Flag.WRITE_INDEX_FILE_ERROR, 8, True, False, False),
        (Flag.DISK_FULL, 16, True, False, True),
    ],
)
def test_the_bits(flag: Flag, bit: int, readable: bool, writeable: bool, queue_writeable: bool) -> None:
    flags = RunningFlags()
    assert flags.set(flag) is True
    assert flags.set(flag) is False
    assert flags.flag_bits == bit
    assert (flags.readable, flags.writeable, flags.queue_writeable) == (readable, writeable, queue_writeable)
    assert flags.clear(flag) is True
    assert flags.clear(flag) is False
    assert flags.flag_bits == 0


def test_the_first_error_of_a_bit_stays_until_it_is_cleared() -> None:
    flags = RunningFlags()
    full, broken = DiskFull("full"), RStoreError("broken")
    flags.set(Flag.DISK_FULL, full)
    flags.set(Flag.DISK_FULL, DiskFull("later"))
    assert flags.error is full
    flags.set(Flag.NOT_WRITEABLE, broken)
    assert flags.error is broken
    assert flags.errors == (broken, full)
    flags.clear(Flag.NOT_WRITEABLE)
    flags.clear(Flag.DISK_FULL)
    assert flags.errors == ()


def test_unreadable_is_no_reason_to_refuse_puts() -> None:
    flags = RunningFlags()
    flags.set(Flag.NOT_READABLE, RStoreError("x"))
    assert flags.error is None


def test_a_bit_is_clear_when_all_have_cleared_it() -> None:
    flags = RunningFlags()
    nearly, full = DiskFull("91 %"), DiskFull("no space left")
    assert flags.set(Flag.DISK_FULL, nearly, by="clean")
    assert not flags.set(Flag.DISK_FULL, full, by="dispatch")
    assert flags.errors == (nearly, full)
    assert flags.refusal == (True, nearly)
    assert flags.clear(Flag.DISK_FULL, by="clean")
    assert not flags.clear(Flag.DISK_FULL, by="clean")
    assert not flags.writeable
    assert flags.error is full
    assert flags.clear(Flag.DISK_FULL, by="dispatch")
    assert flags.writeable
    assert flags.errors == ()
    assert flags.refusal == (False, None)
