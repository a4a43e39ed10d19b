"""Makes the DLedger stores: `python -m tests.compat.generate_dledger [NAME…]`, from the root of the repository.

Each is what a real broker left whose log lies in DLedger's entries, alone in its group, with small files.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from engine.client.connection import RemotingClient
from engine.wire.codes import RequestCode, ResponseCode
from tests.compat import fixtures, generate5, real_broker, toolchain
from tests.compat.generate5 import Topic

INTO = fixtures.FIXTURES / "dledger"
SMALL = {
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxHashSlotNum": 200,
    "maxIndexNum": 800,
    "transactionCheckInterval": 600_000,
}
LEFT_OUT = ("**/LOG", "**/LOG.old.*", "**/OPTIONS-*", "dledger-*/index/*")
"""Texts of RocksDB with this machine's paths, and DLedger's index, 167,772,160 bytes that its data give again."""


@dataclass(frozen=True)
class Recipe:
    """How a store is made. `release`: 4.9 or one of RocketMQ 5; `plain`: messages that a broker without DLedger put
    before; `terms`: how often the broker is started with DLedger; `killed`: at the end."""

    what: str
    release: str
    count: int
    plain: int = 0
    terms: int = 1
    killed: bool = False


RECIPES = {
    "killed5": Recipe("Several files of RocketMQ 5, two terms; the broker was killed.", "5.3.3", 120, 0, 2, True),
    "mixed4": Recipe("Plain segments of RocketMQ 4.9 before DLedger's files; closed cleanly.", "4.9", 80, 60, 2),
}


def settings_of(release: str, port: int, *, dledger: bool) -> str:
    """What a broker is given. `port`: DLedger's."""
    lines: dict[str, object] = {**SMALL, "brokerName": "broker-a"}
    if release != "4.9":
        lines["timerWheelEnable"] = "false"
    if dledger:
        lines |= {"enableDLegerCommitLog": "true", "dLegerGroup": "broker-a", "dLegerSelfId": "n0"}
        lines["dLegerPeers"] = f"n0-127.0.0.1:{port}"
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def apache_of(release: str) -> toolchain.ApacheBroker:
    """The broker of a release."""
    return toolchain.apache_broker() if release == "4.9" else toolchain.apache_broker5(release)


def make(store: Path, recipe: Recipe) -> None:
    """Makes one store at `store`."""
    apache = apache_of(recipe.release)
    with real_broker.name_server(store.parent / "names", apache=apache) as names:
        sent = 0
        counts = [recipe.plain] * bool(recipe.plain) + [recipe.count // recipe.terms] * recipe.terms
        for start, count in enumerate(counts):
            port = real_broker.free_port(8)
            plain = bool(recipe.plain) and not start
            lines = settings_of(recipe.release, port + 2, dledger=not plain)
            with real_broker.broker(store, names, lines, port=port, apache=apache) as broker:
                asyncio.run(_send(broker.broker, sent, count))
                sent += count
                if recipe.killed and start == len(counts) - 1:
                    broker.kill()


async def _send(address: str, first: int, count: int) -> None:
    async with await RemotingClient.connect(address) as client:
        for topic in (Topic("T", first + count), Topic("Other", (first + count) // 4)):
            await generate5.make_topic(client, topic)
            for at in range(first if topic.name == "T" else first // 4, topic.count):
                await generate5.put(client, topic, at)
            for queue_id in range(2):
                await generate5.until_there(client, topic, queue_id)
        delayed = Topic("Delayed", 2)
        await generate5.make_topic(client, delayed)
        await generate5.put(client, delayed, first, DELAY="18")
        group = {"groupName": "G", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
        answer = await client.ask(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode(), timeout_s=20
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        for queue_id in range(2):
            given = {"consumerGroup": "G", "topic": "T", "queueId": str(queue_id), "commitOffset": str(first // 2 + 3)}
            answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, given)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        await asyncio.sleep(6)  # the offsets are written every five seconds


def main(argv: list[str]) -> int:
    """Makes the stores named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.compat.generate_dledger", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of: " + ", ".join(RECIPES))
    parser.add_argument("--into", type=Path, default=INTO)
    given = parser.parse_args(argv)
    given.into.mkdir(exist_ok=True)
    for name in given.names or RECIPES:
        with tempfile.TemporaryDirectory(prefix="rstore-fixture-") as work:
            _generate(name, Path(work) / name, given.into)
    return 0


def _generate(name: str, store: Path, into: Path) -> None:
    recipe = RECIPES[name]
    make(store, recipe)
    for pattern in LEFT_OUT:
        for file in store.glob(pattern):
            file.unlink()
    packed = fixtures.pack(store, name, int(time.time()), into)
    manifest = {
        "what": recipe.what,
        "generator": "tests/compat/generate_dledger.py",
        "command": f"python -m tests.compat.generate_dledger {name}",
        "rocketmq": apache_of(recipe.release).version,
        "java": toolchain.java_version(),
        "settings": SMALL,
        "closed": "killed" if recipe.killed else "cleanly",
        "leftOut": list(LEFT_OUT),
        "messages": {"T": recipe.count + recipe.plain, "Other": (recipe.count + recipe.plain) // 4},
        "sha256": fixtures.sha256(packed),
    }
    (into / f"{name}.manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    print(f"{name}: {packed.stat().st_size} bytes packed", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
