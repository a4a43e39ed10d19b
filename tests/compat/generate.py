"""Makes the fixtures: `python -m tests.compat.generate [NAME…]`, from the root of the repository.

Each store is written by Apache's own message store from made-up puts, which are the same each time; its store times
come from the clock, so the bytes differ from run to run, and the manifest holds the digest of the ones packed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import apache, differential, fixtures, puts
from .apache import SMALL, Exit, Line, Sizes

SEED = 498
ANSWER = ("status", "appendStatus", "wroteOffset", "wroteBytes", "msgId", "storeTimestamp", "logicsOffset", "msgNum")
CHECKPOINT_MARGIN = 3000


@dataclass(frozen=True)
class Recipe:
    """How a fixture is made."""

    what: str
    make: Callable[[], list[Line]]
    crash: bool = False
    bitmaps: bool = False
    sizes: Sizes = SMALL
    more: dict[str, object] = field(default_factory=dict)

    def settings(self) -> dict[str, object]:
        """By Apache's names."""
        return {**self.sizes.settings(), **self.more}


def _crashing() -> list[Line]:
    """Puts with pauses: the checkpoint is last written in the second one, with the time of the messages before it;
    less its margin of three seconds, that is the time of those before the first.
    """
    made = puts.everything(SEED + 1, 600)
    for at, pause in ((0.78, 4500), (0.8, 2500)):
        made[int(len(made) * at)]["pauseMs"] = pause
    return made


RECIPES = {
    "clean-small": Recipe(
        "Messages of every kind, closed cleanly.",
        lambda: puts.everything(SEED, 600),
    ),
    "crashed-small": Recipe(
        "Messages of every kind, then the process was killed: abort there, checkpoint in the middle of the log, a "
        "pre-allocated zero file behind its end.",
        _crashing,
        crash=True,
        # the checkpoint is written, and its time of the log moves, with a thorough flush only
        more={
            "flushIntervalCommitLog": 100,
            "flushCommitLogThoroughInterval": 100,
            "flushConsumeQueueThoroughInterval": 1000,
        },
    ),
    "transient-ext": Recipe(
        "Consume queues with extension files, two of three units with a filter bit map, closed cleanly.",
        lambda: puts.everything(SEED + 2, 150),
        bitmaps=True,
        more={"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1024, "transientStorePoolEnable": False},
    ),
    "lmq": Recipe(
        "Messages dispatched to light queues (%LMQ%) and to a second normal one too, closed cleanly.",
        lambda: puts.dispatched(SEED + 3, 60),
        more={"enableLmq": True, "enableMultiDispatch": True},
    ),
}


def main(argv: list[str]) -> int:
    """Makes the fixtures named, or all, and the damage cases."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.generate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of: " + ", ".join([*RECIPES, "differential"]))
    wanted = parser.parse_args(argv).names or [*RECIPES, "differential"]
    fixtures.FIXTURES.mkdir(exist_ok=True)
    for name in wanted:
        if name == "differential":
            differential.generate(sys.stdout.write)
            continue
        with tempfile.TemporaryDirectory(prefix="rstore-fixture-") as work:
            generate(name, Path(work))
    return 0


def generate(name: str, work: Path) -> None:
    """Makes one fixture."""
    recipe = RECIPES[name]
    store = work / name
    given = recipe.make()
    settings = recipe.settings()
    written = apache.write(store, given, recipe.sizes, crash=recipe.crash, bitmaps=recipe.bitmaps, settings=settings)
    if written.exit != Exit.OPENED or any(result["status"] != "PUT_OK" for result in written.results):
        raise RuntimeError(f"{name}: not written: {written.opened.error} {written.opened.stderr}")
    opened = apache.read(store, recipe.sizes, settings=settings, log=True, query_all=True, keep=True)
    if recipe.crash:
        _check_crashed(store, opened)
    mtime = max(result["storeTimestamp"] for result in written.results) // 1000
    packed = fixtures.pack(store, name, mtime)
    fixtures.write_lines(fixtures.FIXTURES / f"{name}.puts.jsonl.xz", _with_answers(given, written.results))
    fixtures.write_lines(fixtures.FIXTURES / f"{name}.dump.jsonl.xz", _without_times(opened.lines))
    _write_manifest(name, recipe, opened, packed)
    print(f"{name}: {len(opened.log)} messages, {packed.stat().st_size} bytes packed")


def _write_manifest(name: str, recipe: Recipe, opened: apache.Opened, packed: Path) -> None:
    assert opened.final is not None
    manifest = {
        "what": recipe.what,
        "generator": "tests/compat/generate.py",
        "command": f"python -m tests.compat.generate {name}",
        "rocketmq": "4.9.8",
        "java": apache.java_version(),
        "settings": recipe.settings(),
        "closed": "killed" if recipe.crash else "cleanly",
        "puts": f"{name}.puts.jsonl.xz",
        "dump": f"{name}.dump.jsonl.xz",
        "messages": len(opened.log),
        "minPhyOffset": opened.final.min,
        "maxPhyOffset": opened.final.max,
        "queues": [
            {"topic": queue.topic, "queueId": queue.queue_id, "min": queue.min, "max": queue.max}
            for queue in opened.queues
        ],
        "sha256": fixtures.sha256(packed),
    }
    text = json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"
    (fixtures.FIXTURES / f"{name}.manifest.json").write_text(text, encoding="utf-8")


def _with_answers(given: Iterable[Line], results: Iterable[Line]) -> Iterable[Line]:
    """The puts as they went out, each with Apache's answer."""
    for put, result in zip(given, results, strict=True):
        put["preparedTransactionOffset"] = result["preparedTransactionOffset"]
        yield put | {"result": {name: result[name] for name in ANSWER}}


def _without_times(lines: Iterable[Line]) -> Iterable[Line]:
    """The dump without how long each step took."""
    for line in lines:
        yield {name: value for name, value in line.items() if name not in ("loadMs", "startMs")}


def _check_crashed(store: Path, opened: apache.Opened) -> None:
    """Raises unless the store is what it is meant to be: see its recipe."""
    before = opened.of_type("before")[0]
    checkpoint = before["checkpoint"]
    newest = min(checkpoint["physicMsgTimestamp"], checkpoint["logicsMsgTimestamp"]) - CHECKPOINT_MARGIN
    files = sorted((store / "commitlog").iterdir())
    firsts = {line["physicalOffset"]: line["storeTimestamp"] for line in opened.log}
    old = [firsts.get(int(file.name), newest + 1) <= newest for file in files]
    start = max((at for at, is_old in enumerate(old) if is_old), default=0)
    empty = not any(files[-1].read_bytes())
    if not (before["abortFile"] and 0 < start < len(files) - 2 and empty):
        raise RuntimeError(
            f"not crashed as wanted: recovery would start at file {start} of {len(files)}; again, please"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
