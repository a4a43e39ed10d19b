"""Configurations that would take hours to read: a store's own file, a broker's, an admin's request."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import config
from engine.broker_conf.properties import LONGEST, MOST_LINES, demand_bounded, read_properties, read_strictly
from engine.broker_conf.report import read_conf
from engine.errors import InvalidArgument

HOSTILE = b"deleteWhen=" + b"\\\n" * 300_000


def test_a_value_of_many_lines_is_read() -> None:
    text = "a=" + "x\\\n" * (MOST_LINES - 1) + "y"
    assert read_strictly(text)["a"] == "x" * (MOST_LINES - 1) + "y"
    assert read_properties(text.encode()).values == read_strictly(text)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_value_of_too_many_lines_is_refused(end: str) -> None:
    text = "b=1" + end + "a=" + f"x\\{end}" * (MOST_LINES + 1)
    with pytest.raises(InvalidArgument, match=rf"line {MOST_LINES + 2}: a value of more than {MOST_LINES} lines"):
        demand_bounded(text)


def test_many_values_of_some_lines_are_read() -> None:
    assert len(read_strictly("".join(f"k{n}=x\\\ny\n" for n in range(500)))) == 500


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="has 1,048,577 characters, more than 1,048,576"):
        read_strictly("#" * (LONGEST + 1))


def test_no_file_of_settings_holds_a_command(tmp_path: Path) -> None:
    """Each of them took the square of its lines: hours."""
    file = tmp_path / "broker.conf"
    file.write_bytes(HOSTILE)
    for read in (config.load_broker, config.sizes_of_store, lambda path: read_conf(path.read_bytes())):
        with pytest.raises(InvalidArgument, match="a value of more than 100 lines"):
            read(file)


def test_no_file_of_settings_is_read_without_end(tmp_path: Path) -> None:
    file = tmp_path / "rstore.conf"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    for read in (config.load_broker, config.sizes_of_store):
        with pytest.raises(InvalidArgument, match=r"has 1,099,511,627,776 bytes, more than 4,194,304") as refused:
            read(file)
        assert refused.value.path == str(file)
