"""Apache's clients with its own broker and with ours, at the same time: they count and print the same."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.compat import real_broker, served, toolchain
from tests.compat.served import Served

pytestmark = pytest.mark.interop

COUNT = 1000
FOUND_S = 60
_Found = TypeVar("_Found")
_CHANCE = ("checked",)
"""Counts that are a matter of the clock: how often a producer was asked."""


@dataclass(frozen=True, slots=True)
class Both:
    """The two brokers."""

    theirs: real_broker.RealBroker
    ours: Served

    def each(self, use: Callable[[Any], _Found]) -> tuple[_Found, _Found]:
        """The same with both, at the same time."""
        with ThreadPoolExecutor(2) as pool:
            one, two = pool.submit(use, self.theirs), pool.submit(use, self.ours)
            return one.result(), two.result()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    try:
        toolchain.clients()
        toolchain.apache_broker()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    directory = tmp_path_factory.mktemp("both")
    with real_broker.serve(directory / "theirs") as theirs, served.serve(directory / "ours") as ours:
        yield Both(theirs, ours)


@pytest.mark.parametrize(
    "scenario",
    ["cluster", "tags", "sql", "batch", "oneway", "orderly", "delayed", "dead", "transactions", "broadcast"],
)
def test_clients_count_the_same(both: Both, scenario: str) -> None:
    theirs, ours = both.each(lambda broker: served.run_scenario(broker.names, scenario, COUNT))
    for name in _CHANCE:
        assert (name in theirs) == (name in ours)
        theirs.pop(name, None)
        ours.pop(name, None)
    assert ours == theirs


# --- mqadmin ----------------------------------------------------------------------------------------------------------

_COMMANDS = (
    "updateTopic -b {broker} -t Printed -r 3 -w 3",
    "topicRoute -t Printed",
    "topicStatus -t Printed",
    "sendMessage -t Printed -p hello -k key-1 -c tag-1 -b broker-a -i 1",
    "queryMsgByKey -t Printed -k key-1",
    "queryMsgByOffset -t Printed -b broker-a -i 1 -o 0",
    "topicStatus -t Printed",
    "printMsg -t Printed -d true",
    "printMsgByQueue -t Printed -a broker-a -i 1 -p true -d true",
    "updateSubGroup -b {broker} -g PrintedGroup",
    "consumerProgress -g NobodyAtAll",
    "consumerConnection -g NobodyAtAll",
    "producerConnection -g NobodyAtAll -t Printed",
    "topicClusterList -t Printed",
    "topicRoute -t NeverPrinted",
    "topicStatus -t NeverPrinted",
    "updateKvConfig -s Mine -k a -v b",
    "deleteKvConfig -s Mine -k a",
    "deleteSubGroup -b {broker} -g PrintedGroup",
    "updateTopicPerm -b {broker} -t Printed -p 4",
    "topicRoute -t Printed",
    "allocateMQ -t Printed -i a,b",
    "deleteTopic -c DefaultCluster -t Printed",
    "topicRoute -t Printed",
)


def test_mqadmin_prints_the_same(both: Both, tmp_path: Path) -> None:
    theirs, ours = both.each(lambda broker: _printed(tmp_path / type(broker).__name__, broker))
    differences = []
    for command, one, two in zip(_COMMANDS, theirs, ours, strict=True):
        if one != two:
            differences += [f"== {command}", *unified_diff(one, two, "Apache's", "ours", lineterm="", n=0)]
    assert differences == []


def _printed(home: Path, broker: Any) -> list[list[str]]:
    admins, found = served.Admins(home, broker.names), []
    try:
        for command in _COMMANDS:
            said = _said(admins, command.format(broker=broker.broker).split())
            lines = [_normal(line, broker) for line in said.splitlines()]
            found.append([line for line in lines if line and not line.startswith("at ")])
    finally:
        admins.close()
    return found


def _said(admins: served.Admins, words: list[str]) -> str:
    """What a command prints: by key once the index has the message, which is a moment behind the send."""
    said = admins(*words)
    end = time.monotonic() + FOUND_S
    while words[0] == "queryMsgByKey" and "no message" in said and time.monotonic() < end:
        said = admins(*words)
    return said


def _normal(line: str, broker: Any) -> str:
    """Without what can't be the same: ports, times, ids."""
    line = line.replace(broker.broker, "<broker>").replace(broker.names, "<names>")
    line = re.sub(r"\b[0-9A-F]{32,56}\b", "<id>", line)
    line = re.sub(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d(,\d+)?", "<time>", line)
    line = re.sub(r"\b1[5-9]\d{11}\b", "<time>", line)
    line = re.sub(r"(commitLogOffset=|CommitLog Offset: *)\d+", r"\1<place>", line)
    line = re.sub(r"(127\.0\.0\.1:|port[=: ])\d+", r"\1<port>", line)
    try:
        return json.dumps(json.loads(line), sort_keys=True)
    except ValueError:
        return " ".join(line.split())
