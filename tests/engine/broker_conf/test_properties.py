"""Configurations that would take hours to read: a store's own file, a broker's, an admin's request."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine import config
from engine.broker_conf import properties
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


PARTS = st.sampled_from(
    [
        "a",
        "key",
        "=",
        " = ",
        ":",
        " ",
        "\t",
        "\n",
        "\n\n",
        "#",
        "!",
        "\\",
        "\\\n",
        "\\u0041",
        "\r",
        "\r\n",
        "\f",
        "\x00",
        "é",
    ]
)


@given(st.lists(PARTS, max_size=40).map("".join))
@example("a=1\nb = x = y \n# c=3\n\n  a=2")
@example("a=\nb")
@example("=x")
@example("a=1\x0bb=2")
@example("a b=c")
def test_plain_files_are_read_as_javaproperties_reads_them(text: str) -> None:
    quick = outcome(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(properties, "plain_lines", lambda _: None)
        assert quick == outcome(text)


def test_a_usual_file_is_plain() -> None:
    text = "brokerName=a\n# where\nstorePathRootDir = /data/store\n\nnamesrvAddr=10.0.0.1:9876;10.0.0.2:9876\n"
    plain = properties.plain_lines(text)
    assert plain is not None
    assert [line.number for line in plain] == [1, 3, 5]


def outcome(text: str) -> tuple[object, object]:
    """What both readers give: lines, and keys with values in their order."""
    answers: list[object] = []
    for read in (properties.lines_of, lambda text: list(read_strictly(text).items())):
        try:
            answers.append(read(text))
        except InvalidArgument as error:
            answers.append(str(error))
    return answers[0], answers[1]
