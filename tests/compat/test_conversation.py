"""The same conversation with Apache's broker and with ours: every difference is there on purpose, with its reason.

The table of differences is written to build/conversation.md.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.config import StoreConfig
from tests.compat import real_broker, served, toolchain
from tests.compat.conversation.explained import EXPLAINED
from tests.compat.conversation.normal import Names
from tests.compat.conversation.script import converse
from tests.compat.conversation.table import Answers, compare, to_text, unused
from tests.compat.conversation.talk import Talk
from tests.engine.opening import assert_sound
from tests.load.ports import free_ports

pytestmark = pytest.mark.interop

SETTINGS = """
brokerName=broker-a
transactionCheckInterval=2000
transactionTimeOut=6000
enablePropertyFilter=true
"""
TABLE = Path("build/conversation.md")
MOST_S = 200
STEPS = 700


def test_every_difference_is_explained(tmp_path: Path) -> None:
    try:
        version = toolchain.apache_broker().version
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    names, port, *own = free_ports(4)  # all at once: two sides that look for themselves may find the same
    with ThreadPoolExecutor(2) as both:
        first = both.submit(_theirs, tmp_path / "theirs", port, names)
        second = both.submit(_ours, tmp_path / "ours", *own)
        theirs, ours = first.result(), second.result()
    found = compare(theirs, ours, EXPLAINED)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(to_text(len(theirs), version, found))
    assert [one for one in found if one.reason is None] == []
    assert unused(found, EXPLAINED) == []
    assert len(theirs) >= STEPS


def _theirs(directory: Path, port: int, names: int) -> Answers:
    directory.mkdir()
    with real_broker.serve(directory / "store", SETTINGS, port=port, names_port=names) as broker:
        return _hold(broker.broker, broker.names, directory)


def _ours(directory: Path, port: int, names: int) -> Answers:
    """`port`: not 0, as only a broker on a port of its own has a VIP port."""
    directory.mkdir()
    options = ("--port", str(port), "--names-port", str(names))
    with served.serve(directory / "store", SETTINGS, *options) as broker:
        found = _hold(broker.broker, broker.names, directory)
    assert_sound(StoreConfig(store_path_root_dir=directory / "store"))
    return found


def _hold(broker: str, names: str, directory: Path) -> Answers:
    talk = Talk(broker, names, Names(broker, names, str(directory)))
    asyncio.run(asyncio.wait_for(converse(talk), MOST_S))
    return talk.answers
