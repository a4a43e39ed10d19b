"""REMOTING.md and BROKER.md say what the code has: codes, headers, numbers, the topics and groups of a broker."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from engine import wire
from engine.broker.ha import sync
from engine.broker.handlers import admin_clients, pull
from engine.broker.handlers.send import LETTERS
from engine.broker.names import route_table as names
from engine.broker.put import schedule
from engine.broker.requests import bodies
from engine.broker.tables import locks, members
from engine.broker.tables.groups import GroupConfig
from engine.broker.tables.topics import QUEUES_MAX, TopicConfig
from engine.format.topic_rules import FORBIDDEN
from engine.log.results import GetMessageStatus, PutMessageStatus
from engine.wire import codes, command, frames, ha
from engine.wire.codes import RequestCode, ResponseCode
from tests.docs.citations import headings
from tests.docs.markdown import section, tables

REMOTING = Path(wire.__file__).with_name("REMOTING.md")
BROKER = Path(bodies.__file__).parents[1] / "BROKER.md"
SECTIONS = [section(BROKER, title) for title in ("1.1 ", "1.2 ", "1.3 ", "1.4 ")]


def words(text: str) -> set[str]:
    """Names as the protocol writes them."""
    return set(re.findall(r"\b[A-Z][A-Z0-9_]{3,}\b", text))


def test_response_codes() -> None:
    stated = {int(row["code"]): row["name"] for row in tables(section(REMOTING, "1.3 "))[0]}
    assert stated == {int(code): code.name for code in ResponseCode}


def test_request_codes() -> None:
    rows = tables(section(REMOTING, "2 "))[0]
    assert {int(row["code"]): row["name"] for row in rows} == {int(code): code.name for code in RequestCode}
    assert {row["to"] for row in rows} == {"broker", "client", "name server", "broker, then client"}


@pytest.mark.parametrize("row", tables(section(REMOTING, "2 "))[0], ids=lambda row: row["name"])
def test_a_request_stands_in_the_section_that_is_named(row: dict[str, str]) -> None:
    (title,) = (one for one in headings(BROKER) if one.startswith(f"{row['BROKER.md']} "))
    first = {name for one in tables(section(BROKER, title)) for each in one for name in words(each.get("request", ""))}
    assert row["name"] in first


def test_every_request_of_the_tables_has_a_code() -> None:
    named = {
        name for text in SECTIONS for table in tables(text) for row in table for name in words(row.get("request", ""))
    }
    assert named <= {code.name for code in RequestCode}


def test_headers() -> None:
    keys = {row["key"] for row in tables(section(REMOTING, "1.1 "))[0]}
    assert {"code", "language", "version", "opaque", "flag", "remark", "extFields"} < keys
    sizes = {"i16": 2, "u8": 1, "i32": 4}
    fixed = [row for row in tables(section(REMOTING, "1.2 "))[0] if row["type"] in sizes]
    assert all(int(row["bytes"]) == sizes[row["type"]] for row in fixed)
    assert sum(int(row["bytes"]) for row in fixed) + 4 == command._FIXED.size  # the remark's length
    rows = tables(section(REMOTING, "1 "))[0]
    assert sum(int(row["bytes"]) for row in rows if row["bytes"].isdecimal()) == frames._LENGTHS.size


def test_replication() -> None:
    slave, master = tables(section(REMOTING, "3 "))[0]
    assert (int(slave["bytes"]), master["bytes"]) == (ha.ACK.size, f"{ha.HEADER.size} + n")
    assert struct.calcsize(">qi") == ha.HEADER.size


def test_letters() -> None:
    said = ", ".join(f"{letter} {name}" for name, letter in LETTERS.items())
    assert said in " ".join(section(BROKER, "1.1 ").split())


def test_numbers_of_the_texts() -> None:
    remoting, broker = (" ".join(page.read_text(encoding="utf-8").split()) for page in (REMOTING, BROKER))
    for text in (
        f"above {frames.MAX_FRAME} (", f"than {frames.MAX_HEADER} bytes", f"0x{frames.TLS_HELLO:02x}",
        f"ours is {codes.V4_9_8} (", f"from {codes.V3_0_7_SNAPSHOT} on", f"from {codes.V3_0_11} on",
        f"from {codes.V3_1_8_SNAPSHOT} on", f"from {codes.V3_4_9} on", f"from {codes.V4_9_4} on",
    ):  # fmt: skip
        assert text in remoting, text
    for text in (
        f"or {members.EXPIRED_MS // 1000} s after its last heartbeat", f"ends after {locks.LOCKED_MS // 1000} s",
        f"or {names.LIVE_MS // 1000} s after its last registration", f"checked every {pull.TICK_MS // 1000} s",
        f"at most {QUEUES_MAX} queues", f"Every {schedule.TICK_MS} ms each level",
        f"has {admin_clients.CLIENT_S:.0f} s", f"its offsets; {admin_clients.STATUS_S:.0f} s",
        f"{sync.FIRST_S:.0f} s after its start and then every {sync.EVERY_S:.0f} s",
    ):  # fmt: skip
        assert text in broker, text


def test_statuses() -> None:
    stated = [name for row in tables(section(BROKER, "2.3 "))[0] for name in words(row["status"])]
    assert sorted(stated) == sorted(status.name for status in PutMessageStatus)
    found = [
        name for row in tables(section(BROKER, "2.6 "))[0] for name in words(row["what the store finds (the remark)"])
    ]
    assert sorted(found) == sorted(status.name for status in GetMessageStatus)


def test_tables_as_json() -> None:
    rows = {row["body"]: row["keys"] for row in tables(section(BROKER, "1.5 "), marks=True)[0]}
    for body, made in (
        ("a topic", TopicConfig("t", attributes=(("message.type", "FIFO"),)).to_json()),
        ("a group", GroupConfig("g").to_json()),
    ):
        assert re.findall(r"`(\w+)`", rows[body]) == sorted(made)


def test_topics_that_clients_may_not_send_to() -> None:
    text = section(BROKER, "2.2 ")
    assert all(topic in text or topic.startswith(("RMQ_SYS_TRANS_", "TRANS_CHECK_")) for topic in FORBIDDEN)
