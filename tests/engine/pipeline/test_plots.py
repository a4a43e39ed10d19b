"""Pictures: what is in them, that they are written as what their name says, and pages that need nothing else."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from engine.errors import InvalidArgument, StorageError
from engine.pipeline.bins import MOST, bin_ms, words
from engine.pipeline.parquet import arrow_table, write_tables
from engine.pipeline.plots import charts, draw
from engine.pipeline.result import JobResult, Table

HOUR = 3_600_000
MIB = 1 << 20


def stats(hours: list[tuple[int | None, int]], topics: int = 2) -> JobResult:
    rows = tuple((None if h is None else f"hour {h}", None if h is None else h * HOUR, n, 1, 1) for h, n in hours)
    return JobResult(
        "stats",
        {"messages": 3},
        (
            Table("hours", "Hours", ("hour", "hour_timestamp", "messages", "bytes", "body_bytes"), rows),
            Table(
                "topics", "Topics", ("topic", "messages", "bytes"), tuple((f"T{i}<", 1, i * MIB) for i in range(topics))
            ),
            Table("size_histogram", "Sizes", ("from_bytes", "below_bytes", "messages", "bytes"), ((64, 128, 3, 300),)),
        ),
        notes=("a & b",),
    )


DIFF = JobResult(
    "diff",
    {"a": "m", "b": "s"},
    (
        Table(
            "queues",
            "Queues",
            ("topic", "queue_id", "missing_in_a", "missing_in_b", "differing"),
            (("$T$", 0, 1, 2, 3), ("U", 1, 0, 0, 0)),
        ),
    ),
    ok=False,
)
VERIFY = JobResult(
    "verify",
    {},
    (
        Table("stores", "Stores", ("store", "start", "end"), (("a", 0, 120 * MIB), ("b", 0, MIB))),
        Table(
            "damage",
            "Damage",
            ("store", "physical_offset", "length", "reason"),
            (("a", 10 * MIB - 100, 200, "x"), ("a", 119 * MIB, 5, "x"), ("b", 0, 7, "y")),
        ),
    ),
)
LAG = JobResult("lag", {}, (Table("groups", "Groups", ("group", "topic", "messages"), (("g", "T", 5), ("h", "T", 0))),))


def test_hours_without_messages_are_there() -> None:
    found = charts(stats([(472222, 5), (472225, 7), (None, 3)]))[0]
    assert found.series[0].values == (5, 0, 0, 7)
    assert found.labels[0] == "2023-11-14 22:00"


def test_long_times_are_drawn_in_few_bars() -> None:
    found = charts(stats([(0, 1), (1, 2), (1000, 4)]))[0]
    assert found.title == "Messages by 3 hours"
    assert (found.series[0].values[0], found.series[0].values[-1], sum(found.series[0].values)) == (3, 4, 7)
    wild = charts(stats([(-5, 1), (1 << 40, 2)]))[0]
    assert len(wild.labels) <= 400
    assert (wild.series[0].values[0], wild.series[0].values[-1], sum(wild.series[0].values)) == (1, 2, 3)


def test_a_short_time_has_more_than_one_bar() -> None:
    """Ten minutes, with a minute in the middle in which nothing came."""
    first, last = 472222 * HOUR + 59_000, 472222 * HOUR + 660_000
    rows = tuple((at, 2, 200, 100) for at in range(first // 15_000 * 15_000, last, 15_000) if at % HOUR // 60_000 != 5)
    table = Table("times", "By 15 s", ("time_timestamp", "messages", "bytes", "body_bytes"), rows)
    whole = stats([(472222, 2 * len(rows))])
    facts = {"first_store_timestamp": first, "last_store_timestamp": last}
    found = charts(replace(whole, facts=facts, tables=(*whole.tables, table)))[0]
    assert found.title == "Messages by 15 s, from 2023-11-14 22:00:45.000 UTC"
    assert (sum(found.series[0].values), found.series[0].values.count(0)) == (2 * len(rows), 4)
    assert found.labels[:2] == ("22:00:45.000", "22:01:00.000")


@pytest.mark.parametrize("span", [0, 1, 59, 60, 999, 12_345, 600_000, 3_600_000, 86_399_999])
def test_bars_fit_the_span(span: int) -> None:
    for first in (0, 1_700_000_000_123):
        width = bin_ms(first, first + span)
        assert width is not None
        count = (first + span) // width - first // width + 1
        assert count <= MOST
        assert count > MOST // 4 or span < MOST // 2
    assert bin_ms(0, 86_400_000) is bin_ms(None, None) is None
    assert [words(width) for width in (1, 500, 15_000, 60_000)] == ["1 ms", "500 ms", "15 s", "1 min"]


def test_sizes_without_a_record_are_there() -> None:
    whole = stats([(0, 1)])
    sizes = Table("size_histogram", "Sizes", ("from_bytes", "messages"), ((64, 3), (512, 1)))
    found = charts(replace(whole, tables=(*whole.tables[:2], sizes)))[2]
    assert (found.labels, found.series[0].values) == (("64", "128", "256", "512"), (3, 0, 0, 1))


def test_many_bars_become_one() -> None:
    found = charts(stats([(0, 1)], topics=100))[1]
    assert (len(found.labels), found.labels[0], found.labels[-1]) == (25, "T99<", "76 more")
    assert sum(found.series[0].values) == pytest.approx(sum(range(100)))


def test_divergence_lag_and_damage() -> None:
    (found,) = charts(DIFF)
    assert found.labels == ("$T$/0",)
    assert [(one.name, one.values) for one in found.series] == [
        ("missing in m", (1,)),
        ("missing in s", (2,)),
        ("differ", (3,)),
    ]
    (found,) = charts(LAG)
    assert (found.labels, found.series[0].values) == (("g: T",), (5,))
    (found,) = charts(VERIFY)
    assert [one.name for one in found.series] == ["a", "b"]
    assert (found.series[0].values[9], found.series[0].values[10], found.series[0].values[119]) == (100, 100, 5)
    assert (sum(found.series[0].values), sum(found.series[1].values)) == (205, 7)


@pytest.mark.parametrize("result", [stats([(472222, 5)]), DIFF, VERIFY, LAG], ids=lambda result: result.job)
def test_files_are_what_their_names_say(result: JobResult, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(result, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG\r\n")
    draw(result, tmp_path / "x.SVG")
    tree = ET.parse(tmp_path / "x.SVG")
    assert tree.getroot().tag == "{http://www.w3.org/2000/svg}svg"
    texts = {text for one in tree.iter() if (text := "".join(one.itertext()).strip())}
    assert {chart.title for chart in charts(result)} <= texts
    draw(result, tmp_path / "x.html")
    parsed = Page()
    parsed.feed((tmp_path / "x.html").read_text())
    assert parsed.count("svg") == len(charts(result))
    assert parsed.count("script") == parsed.count("link") == parsed.count("img") == 0
    assert not [value for value in parsed.references if not value.startswith("#")]
    assert parsed.count("h2") == len(result.tables)
    assert parsed.count("tr") == len(result.facts) + sum(len(t.rows) + bool(t.rows) for t in result.tables)


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]

    def count(self, tag: str) -> int:
        return self.tags.count(tag)


@pytest.mark.filterwarnings("error")
def test_names_that_no_font_and_no_xml_has(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = (("\x01\x00标签", "$x_{", 5), ("_hidden", "T", 2))
    result = JobResult("lag", {}, (Table("groups", "Groups", ("group", "topic", "messages"), rows),))
    draw(result, tmp_path / "x.png")
    draw(result, tmp_path / "x.svg")
    assert "··标签: $x_{" in "".join(ET.parse(tmp_path / "x.svg").getroot().itertext())
    draw(result, tmp_path / "x.html")
    assert "<td>··标签</td>" in (tmp_path / "x.html").read_text()


def test_a_page_of_an_answer_without_pictures(tmp_path: Path) -> None:
    result = JobResult("grep", {"matches": 1}, (Table("messages", "M", ("body",), (("<script>x</script>",),)),))
    draw(result, tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text()
    assert "&lt;script&gt;x&lt;/script&gt;" in text
    assert "<script" not in text
    with pytest.raises(InvalidArgument, match="grep has no data for a chart"):
        draw(result, tmp_path / "x.png")


def test_what_can_not_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match=r"unknown kind of chart: x.pdf"):
        draw(LAG, tmp_path / "x.pdf")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in ("x.png", "x.html"):
        with pytest.raises(StorageError, match="matplotlib is not installed"):
            draw(LAG, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageError, match="no such file"):
        draw(JobResult("grep", {}), tmp_path / "no" / "x.html")


def test_tables_as_parquet(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    table = Table(
        "one",
        "One",
        ("text", "number", "share", "flag", "mixed", "none", "huge"),
        (
            ("a", 1, 0.5, True, "x", None, 1 << 70),
            (None, None, 2, None, 3, None, 1),
            ("c", -(1 << 63), None, False, None, None, 2),
        ),
    )
    (path, other) = write_tables(JobResult("x", {}, (table, Table("two", "Two", ("a",), ()))), tmp_path / "new" / "dir")
    assert (path.name, other.name) == ("one.parquet", "two.parquet")
    found = pq.read_table(path)
    assert [str(kind) for kind in found.schema.types] == [
        "string",
        "int64",
        "double",
        "bool",
        "string",
        "string",
        "string",
    ]
    assert found.to_pylist()[1] == {
        **{"text": None, "number": None, "share": 2.0, "flag": None, "mixed": "3", "none": None, "huge": "1"}
    }
    assert pq.read_table(other).num_rows == 0
    assert arrow_table(table).schema.metadata == {b"title": b"One"}
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="writing the tables"):
        write_tables(JobResult("x", {}, (table,)), tmp_path / "file")
