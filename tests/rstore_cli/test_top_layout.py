"""`rstore top` on screens of 80 × 24 and 50 × 24: what is seen, what is counted, and how keys reach it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rstore_cli.screen import cells
from rstore_cli.top_frame import Frame, Look, Sort
from rstore_cli.top_layout import TopView, draw, keys_of

SCREENS = Path(__file__).parent / "screens"
TOPIC = "orders-{}-payments-reconciliation-nightly-batch-europe"


def look(topics: int = 8, groups: int = 12, *, ms: int = 1_700_000_000_000, done: int = 1) -> Look:
    """A broker at work: the first topics take the most, the last groups are the furthest behind."""
    return {
        "time": ms, "address": "192.0.2.7:10911", "uptime": 3_600_000, "heldPulls": 1, "errors": [],
        "connections": {"broker": 3, "nameService": 1}, "disks": {"CL": 0.71, "CQ": 0.7}, "flushLag": 100,
        "dispatchLag": 0, "writeable": True,
        "topics": {
            TOPIC.format(i): {
                "putMessages": done * (topics - i) * 1000, "putBytes": done * (topics - i) * 1_000_000,
                "getMessages": done * i, "getBytes": done * i * 100,
            }
            for i in range(topics)
        },
        "groups": [
            {"group": f"settlement-consumers-{i}", "topic": TOPIC.format(i), "lag": i * i * 1_000_003, "members": i}
            for i in range(groups)
        ],
    }  # fmt: skip


def frame(sort: Sort = Sort.LAG, **sizes: int) -> Frame:
    return Frame.of(look(**sizes), look(**sizes, ms=1_700_000_002_000, done=2), sort)


def text(columns: int, view: TopView, height: int = 24, **sizes: int) -> str:
    lines = [line for line, _ in draw(frame(view.sort, **sizes), view, columns, height).lines]
    assert len(lines) == height
    assert all(cells(line) <= columns for line in lines)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("columns", [80, 50])
def test_a_screen(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    seen = text(columns, TopView())
    path = SCREENS / f"top-{columns}.txt"
    if os.environ.get("RSTORE_SCREENS") == "write":
        path.write_text(seen, encoding="utf-8")
    assert seen == path.read_text(encoding="utf-8")


def test_the_topic_that_lags_is_seen_first_and_the_others_are_counted() -> None:
    seen = text(80, TopView())
    assert re.search(r"^orders-7-\S+ .* 49,000,147$", seen, flags=re.MULTILINE)
    assert re.findall(r"^… .*$", seen, flags=re.MULTILINE) == ["… 2 more", "… 6 more"]


def test_all_is_seen_where_there_is_room() -> None:
    assert "…" not in text(200, TopView(), height=40)
    seen = text(80, TopView(), groups=2)  # what one table does not need is the other's
    assert "more" not in seen


def test_keys_scroll_to_the_last_row_and_back() -> None:
    view, sizes = TopView(), {"topics": 20, "groups": 20}
    seen: set[str] = set()
    for _ in range(30):
        now = text(80, view, **sizes)
        seen |= set(re.findall(r"^orders-\d+", now, flags=re.MULTILINE))
        view = view.after("down", frame(**sizes), draw(frame(**sizes), view, 80, 24).rows)
    assert seen == {f"orders-{i}" for i in range(20)}
    assert "… 14 above\n" in text(80, view, **sizes)
    rows = draw(frame(**sizes), view, 80, 24).rows
    assert view.after("home", frame(**sizes), rows) == TopView()
    assert TopView().after("end", frame(**sizes), rows) == view
    assert TopView().after("pagedown", frame(**sizes), rows).first == (5, 0)
    other = TopView().after("tab", frame(**sizes), rows).after("down", frame(**sizes), rows)
    assert (other.active, other.first) == (1, (0, 1))
    assert "… 13 more, 1 above" in text(80, other, **sizes)
    assert other.after("n", frame(**sizes), rows) == TopView(Sort.NAME, active=1)
    assert view.after("x", frame(**sizes), rows) == view


@pytest.mark.parametrize("height", [6, 10, 14])
def test_a_low_screen(height: int) -> None:
    assert text(80, TopView(), height=height).splitlines()[-1].startswith("sorted by lag")


def test_trouble_is_red() -> None:
    lines = draw(frame(), TopView(), 80, 24, "no daemon runs on this store").lines
    assert ("trouble     no daemon runs on this store", "red") in lines


def test_keys_as_terminals_send_them() -> None:
    assert keys_of(b"l\x1b[A\x1b[6~\tq") == ["l", "up", "pagedown", "tab", "q"]
    assert keys_of(b"\x1bOB\x1b[4~") == ["down", "end"]
    assert keys_of(b"") == []
