"""What one client can send that is a lot of work: each attack of `tests.load.canary`, in a process of its own.

    python -m tests.load.attacks NAME BROKER NAMES METRICS

It attacks until its stdin ends, and says `{"done": …}` on each round. What must be there before is made by `prepare`
(files of a store) or at the begin of the attack, before it says `{"ready": true}`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from engine.client.admin.topics import topic_fields
from engine.client.clock import now_ms
from engine.client.heartbeats import heartbeat_body
from engine.client.subscriptions import SQL92
from engine.errors import PeerLost
from engine.format import fastjson, sysflag
from engine.wire import registration
from engine.wire.codes import RequestCode
from tests.support.wire import Wire, pull_request, put_request

FILTERS, GROUPS = 20_000, 10_000
OFFSETS, OFFSET_GROUPS = 100_000, 40_000
TOPICS = 900_000
JSON_TOPICS = 80_000
ROWS = 20_000
HALVES = 20_000
_WAIT_S = 900
EXPRESSION = " OR ".join(f"a{number} = {number}" for number in range(600))[:8100].rpartition(" OR ")[0]


class Attack:
    """One of them. `prepare`: writes files of the store before the broker starts; `begin`: sends what must be there."""

    def __init__(self, broker: str, names: str, metrics: str) -> None:
        self.broker, self.names, self.metrics = broker, names, metrics

    @classmethod
    def prepare(cls, store: Path) -> None:
        """Nothing."""

    def begin(self) -> None:
        """Nothing."""

    def round(self) -> Any:
        """What it does again and again; something to tell."""
        time.sleep(0.1)

    def client(self, address: str = "") -> Wire:
        return Wire(address or self.broker, _WAIT_S)


class Busy(Attack):
    """No attack: as much CPU as one takes."""

    def round(self) -> Any:
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            sum(range(10_000))


class Filters(Attack):
    """Thousands of filters of a group, then thousands of groups; then a usual heartbeat now and then."""

    def begin(self) -> None:
        self.talk = self.client()

    def round(self) -> Any:
        wanted = [_subscription(f"t{n}", f"a > {n}") for n in range(FILTERS)]
        codes = [self._beat([{"groupName": "many-filters", "subscriptionDataSet": wanted}])]
        codes.append(self._beat([{"groupName": f"g{n}", "subscriptionDataSet": []} for n in range(GROUPS)]))
        codes.append(self._beat([{"groupName": "usual", "subscriptionDataSet": [_subscription("t1", "b > 1")]}]))
        # as many as are allowed
        codes.append(self._beat([{"groupName": "allowed", "subscriptionDataSet": wanted[:1000]}]))
        few = [{"groupName": f"f{n}", "subscriptionDataSet": [_subscription(f"t{n}", "c > 1")]} for n in range(4000)]
        codes.append(self._beat(few))
        return codes

    def _beat(self, consumers: list[dict[str, Any]]) -> int:
        return self.talk.ask(RequestCode.HEART_BEAT, None, heartbeat_body("attacker", (), consumers)).code


class Stats(Attack):
    """GET_BROKER_CONSUME_STATS of thousands of groups."""

    @classmethod
    def prepare(cls, store: Path) -> None:
        _prepare_offsets(store, OFFSETS, OFFSET_GROUPS)

    def round(self) -> Any:
        with self.client() as talk:
            answer = talk.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
            return [answer.code, len(answer.body)]


class Sql(Attack):
    """An expression that never matches."""

    rows, most, pipelined = ROWS, 32, 1

    def begin(self) -> None:
        with self.client() as talk:
            talk.put("Rows", 0, b"x", {"a": "1"})
            talk.ask_all([put_request("Rows", 0, b"x", {"k": str(n)}) for n in range(self.rows)])
        self.talk = self.client()
        self.talk.heartbeat(consumer="sql", topics=("Rows",))

    def round(self) -> Any:
        pull = pull_request("sql", "Rows", 0, 0, most=self.most, expression=EXPRESSION, kind=SQL92)
        codes = [answer.code for answer in self.talk.ask_all([pull] * self.pipelined)]
        return [codes[0], len(codes)]


class SqlMost(Sql):
    """The same, asking for 2³¹ − 1 messages."""

    most = (1 << 31) - 1


class SqlMany(Sql):
    """300 of them at once."""

    pipelined = 300


class Register(Attack):
    """REGISTER_BROKER of thousands of topics, compressed in one frame."""

    def begin(self) -> None:
        lines = (f"t{n} 8 8 6 SINGLE_TAG" for n in range(TOPICS))
        self.body = registration.compress(orjson.dumps({"counter": 1, "timestamp": 1}), lines, b"[]")

    def round(self) -> Any:
        ext = _broker("true", str(zlib.crc32(self.body) & 0x7FFFFFFF))
        with self.client(self.names) as talk:
            answer = talk.ask(RequestCode.REGISTER_BROKER, ext, self.body)
            return [answer.code, answer.remark]


class RegisterJson(Register):
    """The same as JSON."""

    def begin(self) -> None:
        table = {
            f"t{n}": {
                "order": False, "perm": 6, "readQueueNums": 8, "topicFilterType": "SINGLE_TAG", "topicName": f"t{n}",
                "topicSysFlag": 0, "writeQueueNums": 8,
            }
            for n in range(JSON_TOPICS)
        }  # fmt: skip
        wrapper = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}
        self.body = orjson.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})

    def round(self) -> Any:
        with self.client(self.names) as talk:
            answer = talk.ask(RequestCode.REGISTER_BROKER, _broker("false", "0"), self.body)
            return [answer.code, answer.remark, len(self.body)]


class Metrics(Attack):
    """/metrics with a hundred groups on a topic of 65536 queues."""

    def begin(self) -> None:
        with self.client() as talk:
            talk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, _topic("Wide", 65536))
            for n in range(100):
                ext = {"consumerGroup": f"g{n}", "topic": "Wide", "queueId": "0", "commitOffset": "1"}
                talk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    def round(self) -> Any:
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=_WAIT_S) as answer:
            return len(answer.read())


class Topics(Attack):
    """updateTopic, 300 of them pipelined."""

    def begin(self) -> None:
        self.talk = self.client()

    def round(self) -> Any:
        wanted = [(RequestCode.UPDATE_AND_CREATE_TOPIC, _topic(f"U{n}", 8), b"") for n in range(300)]
        return sum(answer.code == 0 for answer in self.talk.ask_all(wanted))


class Halves(Attack):
    """Half messages that nobody ends."""

    settings = "transactionCheckInterval=2000\n"

    def begin(self) -> None:
        self.talk = self.client()
        self.talk.heartbeat(producers=("halves",))
        words = {"TRAN_MSG": "true", "PGROUP": "halves", "UNIQ_KEY": "k"}
        half = put_request("Half", 0, b"x" * 100, words, group="halves", sys_flag=sysflag.TRANSACTION_PREPARED)
        for _ in range(HALVES // 1000):
            self.talk.ask_all([half] * 1000)

    def round(self) -> Any:
        time.sleep(0.5)


class Offsets(Stats):
    """Thousands of offsets that are written, and read over and over."""

    def begin(self) -> None:
        self.talk = self.client()
        self.number = 0

    def round(self) -> Any:
        self.number += 1
        ext = {"consumerGroup": "g1", "topic": "t1", "queueId": "0", "commitOffset": str(self.number)}
        self.talk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        return len(self.talk.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body)


ATTACKS: dict[str, type[Attack]] = {
    "idle": Attack,
    "busy": Busy,
    "filters": Filters,
    "consume-stats": Stats,
    "sql": Sql,
    "sql-most": SqlMost,
    "sql-many": SqlMany,
    "register": Register,
    "register-json": RegisterJson,
    "metrics": Metrics,
    "topics": Topics,
    "halves": Halves,
    "offsets": Offsets,
}


def _subscription(topic: str, expression: str) -> dict[str, Any]:
    return {"topic": topic, "subString": expression, "subVersion": now_ms(), "expressionType": SQL92}


def _topic(name: str, queues: int) -> dict[str, str]:
    return topic_fields(name, {"readQueueNums": queues, "writeQueueNums": queues, "perm": 6})


def _broker(compressed: str, crc: str) -> dict[str, str]:
    return {
        "brokerName": "other", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "haServerAddr": "127.0.0.1:2",
        "brokerId": "0", "compressed": compressed, "bodyCrc32": crc,
    }  # fmt: skip


def _prepare_offsets(store: Path, offsets: int, groups: int) -> None:
    """consumerOffset.json, subscriptionGroup.json and topics.json as a broker with so many would have left them."""
    config = store / "config"
    config.mkdir(parents=True)
    table = {f"t{n % 100}@g{n % groups}x{n // groups}": {"0": 5} for n in range(offsets)}
    table["t1@g1"] = {"0": 5}
    names = {key.partition("@")[2] for key in list(table)[:groups]}
    version = {"counter": 1, "timestamp": 1}
    topics = {
        f"t{n}": {
            "order": False, "perm": 6, "readQueueNums": 1, "topicFilterType": "SINGLE_TAG", "topicName": f"t{n}",
            "topicSysFlag": 0, "writeQueueNums": 1,
        }
        for n in range(100)
    }  # fmt: skip
    group_table = {name: {"groupName": name} for name in names}
    (config / "consumerOffset.json").write_text(fastjson.dumps({"offsetTable": table}))
    (config / "subscriptionGroup.json").write_text(
        fastjson.dumps({"dataVersion": version, "subscriptionGroupTable": group_table})
    )
    (config / "topics.json").write_text(fastjson.dumps({"dataVersion": version, "topicConfigTable": topics}))


def _rounds(attack: Attack, stopped: threading.Event) -> Iterator[Any]:
    while not stopped.is_set():
        yield attack.round()


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def main(name: str, *addresses: str, say: Callable[[dict[str, Any]], None] = _say) -> None:
    attack = ATTACKS[name](*addresses)
    attack.begin()
    say({"ready": True})
    stopped = threading.Event()
    waits = threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True)
    sys.stdin.readline()  # the canary is there
    waits.start()
    try:
        for done in _rounds(attack, stopped):
            say({"done": done})
    except (PeerLost, OSError) as error:
        say({"gone": str(error)})


if __name__ == "__main__":
    main(*sys.argv[1:])
