"""Makes the bases of the proof: `python -m tests.proof.write_bases [NAME…]` (Java and Maven; a minute).

Each is written by Apache 4.9.8's own message store (tests.compat.apache), then read again by it: the reader of the
proof (own.py, truth.py) must find what Apache finds, or nothing is packed. Two things are not Apache's store alone:

- A log from 5 TiB on: Apache is started on an empty segment of that name, and goes on from there.
- `config/`: a broker writes it, not the message store. It is made up here, in the form that a broker gives it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat import apache, puts
from tests.compat.apache import Exit, Line, Sizes
from tests.support import stores

from . import bases

FAR = 5 << 40
MOMENTS = "moments"
PAUSE_MS = 350
QUICK = {
    "flushIntervalCommitLog": 100,
    "flushCommitLogThoroughInterval": 100,
    "flushConsumeQueueThoroughInterval": 500,
}
"""The checkpoint follows the messages soon: it lies in the middle of the log when the process is killed."""


@dataclass(frozen=True)
class Recipe:
    """How a base is made. `first`: physical offset that the log starts at. `moments`: copied while it is written."""

    what: str
    make: Callable[[], list[Line]]
    sizes: Sizes
    crash: bool = False
    first: int = 0
    moments: bool = False
    more: dict[str, object] = field(default_factory=dict)


def keyed(seed: int, messages: int, *, pause_every: int = 0) -> list[Line]:
    """Small messages with keys and a unique key each, in three topics; pauses after so many."""
    maker = puts.Maker(seed)
    topics = [("Orders", 4), ("audit_log-x", 2), ("%RETRY%billing", 1)]
    while maker.messages < messages:
        topic, queues = maker.random.choices(topics, (6, 3, 1))[0]
        properties = {
            "KEYS": f"order-{maker.messages} k{maker.random.randrange(40)}",
            "TAGS": maker.random.choice("AB"),
        }
        properties["UNIQ_KEY"] = f"{maker.random.getrandbits(64):016X}{maker.messages:016X}"
        body = " ".join(maker.random.choice(puts.WORDS) for _ in range(maker.random.randrange(1, 24)))
        one = maker.one("normal", topic, maker.random.randrange(queues), properties=properties, body=_base64(body))
        if pause_every and maker.messages % pause_every == 0:
            one["pauseMs"] = PAUSE_MS
    return maker.made


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(text.encode()).decode()


def _paused(made: list[Line], every: int) -> list[Line]:
    for at in range(every, len(made), every):
        made[at]["pauseMs"] = PAUSE_MS
    return made


RECIPES = {
    "keys": Recipe(
        "1000 messages with keys, small files everywhere; closed cleanly.",
        lambda: keyed(101, 1000),
        Sizes(65_536, 4_000, 54, 216),
    ),
    "live": Recipe(
        "1000 messages with keys; killed; with copies of the store taken while it was written.",
        lambda: keyed(102, 1000, pause_every=100),
        Sizes(65_536, 4_000, 54, 216),
        crash=True,
        moments=True,
        more=QUICK,
    ),
    "tiny": Recipe(
        "500 messages in files of 16 KiB; closed cleanly.",
        lambda: keyed(103, 500),
        Sizes(16_384, 400, 20, 60),
    ),
    "far": Recipe(
        "Messages of every kind in a log that starts at 5 TiB; killed.",
        lambda: _paused(puts.everything(104, 250), 60),
        Sizes(65_536, 2_000, 100, 400),
        crash=True,
        first=FAR,
        more=QUICK,
    ),
    "paths": Recipe(
        "Messages of every kind, the log in two directories (storePathCommitLog); closed cleanly.",
        lambda: puts.everything(105, 250),
        Sizes(65_536, 2_000, 100, 400),
        more={"storePathCommitLog": "ROOT/commitlog,ROOT/commitlog-2"},
    ),
    "wide": Recipe(
        "Messages of every kind, segments of 1 MiB, large index files; killed; with copies taken while it was written.",
        lambda: _paused(puts.everything(106, 300), 50),
        Sizes(1 << 20, 20_000, 1_000, 4_000),
        crash=True,
        moments=True,
        more=QUICK,
    ),
}


def main(argv: list[str]) -> int:
    """Makes the bases named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.write_bases")
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of: " + ", ".join(RECIPES))
    for name in parser.parse_args(argv).names or RECIPES:
        with tempfile.TemporaryDirectory(prefix="rstore-base-") as work:
            make(name, RECIPES[name], Path(work))
    return 0


def make(name: str, recipe: Recipe, work: Path) -> None:
    """Makes one base, and packs it."""
    top = work / name
    store = top / "store"
    settings = {**recipe.sizes.settings(), **recipe.more}
    given = recipe.make()
    store.mkdir(parents=True)
    if recipe.first:
        (store / "commitlog").mkdir()
        with (store / "commitlog" / f"{recipe.first:020d}").open("wb") as file:
            file.truncate(recipe.sizes.commitlog_file)
    seen = _Copies(store, top / MOMENTS) if recipe.moments else None
    written = apache.write(
        store, given, recipe.sizes, crash=recipe.crash, sync_flush=False, settings=_at(settings, store)
    )
    if seen is not None:
        seen.end()
    if written.exit != Exit.OPENED or any(result["status"] != "PUT_OK" for result in written.results):
        raise RuntimeError(f"{name}: not written: {written.opened.error} {written.opened.stderr}")
    (store / "lock").unlink(missing_ok=True)
    _config(store, recipe)
    opened = _read_copy(store, recipe, settings, work / "copy")
    facts = bases.facts(store, settings)
    bases.hold_against(facts, opened)
    manifest = {
        "what": recipe.what,
        "command": f"python -m tests.proof.write_bases {name}",
        "rocketmq": "4.9.8",
        "settings": settings,
        "closed": "killed" if recipe.crash else "cleanly",
        "records": len(facts.records),
        "moments": len(list((top / MOMENTS).iterdir())) if recipe.moments else 0,
    }
    packed = bases.pack(top, name, manifest)
    print(f"{name}: {manifest['records']} records, {manifest['moments']} moments, {packed.stat().st_size} bytes packed")


def _at(settings: dict[str, object], store: Path) -> dict[str, object]:
    return {
        key: value.replace("ROOT", str(store)) if isinstance(value, str) else value for key, value in settings.items()
    }


def _read_copy(store: Path, recipe: Recipe, settings: dict[str, object], copy: Path) -> apache.Opened:
    shutil.copytree(store, copy)
    opened = apache.read(copy, recipe.sizes, settings=_at(settings, copy), log=True, query_all=True)
    shutil.rmtree(copy)
    if opened.exit != Exit.OPENED:
        raise RuntimeError(f"not read: {opened.error} {opened.stderr}")
    return opened


class _Copies:
    """Copies a store again and again while it is written, until `end`: each with its files of different moments."""

    def __init__(self, store: Path, to: Path) -> None:
        self._store, self._to = store, to
        self._over = threading.Event()
        to.mkdir(parents=True)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """No more copies; those that say the same as the one before go."""
        self._over.set()
        self._thread.join()
        before: dict[str, str] = {}
        for copy in sorted(self._to.iterdir()):
            now = stores.contents(copy)
            if now == before or not any(path.startswith("commitlog/") for path in now):
                shutil.rmtree(copy)
            before = now
        kept = sorted(self._to.iterdir())
        for copy in set(kept) - set(kept[:: max(1, len(kept) // 8)]):
            shutil.rmtree(copy)
        for number, copy in enumerate(sorted(self._to.iterdir())):
            copy.rename(self._to / f"m{number}")

    def _run(self) -> None:
        number = 0
        while not self._over.wait(0.2):
            if (self._store / "commitlog").is_dir():
                stores.copy_running(self._store, self._to / f"c{number:04d}")
                (self._to / f"c{number:04d}" / "lock").unlink(missing_ok=True)
                number += 1


def _config(store: Path, recipe: Recipe) -> None:
    """`config/` as a broker has it: topics, groups, and offsets that lie within the queues."""
    rng = random.Random(recipe.what)
    queues: dict[str, dict[int, int]] = {}
    for file in sorted((store / "consumequeue").glob("*/*/*")):
        units = file.read_bytes()
        filled = sum(1 for at in range(0, len(units), 20) if units[at + 8 : at + 12] != bytes(4))
        of_topic = queues.setdefault(file.parts[-3], {})
        of_topic[int(file.parts[-2])] = of_topic.get(int(file.parts[-2]), 0) + filled
    topics = {
        topic: {
            "order": False,
            "perm": 6,
            "readQueueNums": max(by_id) + 1,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": max(by_id) + 1,
        }
        for topic, by_id in queues.items()
        if not topic.startswith("%LMQ%")
    }
    offsets = {
        f"{topic}@group-{number}": {str(one): rng.randrange(end + 1) for one, end in by_id.items()}
        for topic, by_id in queues.items()
        for number in range(2)
        if topic != "SCHEDULE_TOPIC_XXXX"
    }
    delays = {str(one + 1): rng.randrange(end + 1) for one, end in queues.get("SCHEDULE_TOPIC_XXXX", {}).items()}
    groups = {
        f"group-{number}": {
            "brokerId": 0,
            "consumeBroadcastEnable": True,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "groupName": f"group-{number}",
            "notifyConsumerIdsChangedEnable": True,
            "retryMaxTimes": 16,
            "retryQueueNums": 1,
            "whichBrokerWhenConsumeSlowly": 1,
        }
        for number in range(2)
    }
    version = {"counter": 1, "timestamp": puts.BORN}
    (store / "config").mkdir()
    for name, table in {
        "topics": {"dataVersion": version, "topicConfigTable": topics},
        "subscriptionGroup": {"dataVersion": version, "forbiddenTable": {}, "subscriptionGroupTable": groups},
        "consumerOffset": {"offsetTable": offsets},
        "delayOffset": {"offsetTable": delays},
    }.items():
        text = json.dumps(table, indent=2)
        for suffix in ("", ".bak"):
            (store / "config" / f"{name}.json{suffix}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
