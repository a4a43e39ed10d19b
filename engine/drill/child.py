"""A drill in a process of its own: `python -m engine.drill.child`, a JSON line on stdin, JSON lines on stdout.

Lines: `{"ready": true}` first, `{"progress": [done, total]}`, and at the end `{"result": …}` (DrillResult.to_json).
When stdin ends before, the parent is gone, and so is this process. One that stands still ends itself, and says where.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
from dataclasses import asdict
from typing import Any, TextIO

from engine.config import StoreConfig, apache_key, parse
from engine.dataclass import dataclass
from engine.drill.files import copy_tree
from engine.drill.read_script import parse_script
from engine.drill.run import run_drill
from engine.drill.steps import How
from engine.files.disk import Disk

SILENCE_S = 600
"""Seconds without any progress after which a drill stands still."""
KEPT = ".kept"


@dataclass(frozen=True, slots=True)
class ChildTask:
    """What a child does.

    Attributes:
        script: the drill's text, and `source`, where it is from.
        place: its scratch directory.
        settings: of the store that it starts from, as properties; None: it makes its own.
        mounted: `place` is a small file system of its own.
        patience: seconds that are added to SILENCE_S, for a large store.
    """

    script: str
    source: str
    place: str
    settings: str | None
    sample: int | None
    thorough: bool
    keep: bool
    mounted: bool
    patience: int = 0

    def to_line(self) -> str:
        """As the child reads it."""
        return json.dumps(asdict(self)) + "\n"


def settings_text(config: StoreConfig) -> str:
    """The settings that somebody gave, as a properties file."""
    import javaproperties

    settings = {apache_key(name): _text(getattr(config, name)) for name in sorted(config.given) if name != "other"}
    settings["storePathRootDir"] = os.fspath(config.store_path_root_dir)
    return str(javaproperties.dumps({key: value for key, value in settings.items() if value is not None}))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return str(getattr(value, "value", value))


def main() -> int:
    """Run the task on stdin."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr  # nothing else may come between the lines
    task = ChildTask(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_watch, daemon=True).start()
    _say(answers, {"ready": True})
    _say(answers, {"result": _run(task, answers)})
    return 0


def _run(task: ChildTask, answers: TextIO) -> dict[str, Any]:
    def progress(done: int, total: int) -> None:
        faulthandler.dump_traceback_later(SILENCE_S + task.patience, exit=True)
        _say(answers, {"progress": [done, total]})

    drill = parse_script(task.script.encode(), task.source)
    source = None if task.settings is None else parse(task.settings)
    how = How(task.sample, task.thorough, task.place if task.mounted else None)
    progress(0, len(drill.steps))
    result = run_drill(drill, task.place, source=source, how=how, keep=task.keep, progress=progress)
    if task.keep and task.mounted:  # the file system goes with this process
        result.scratch = task.place + KEPT
        copy_tree(Disk(), task.place, result.scratch)
    return result.to_json()


def _say(answers: TextIO, line: dict[str, Any]) -> None:
    answers.write(json.dumps(line) + "\n")
    answers.flush()


def _watch() -> None:
    """The parent holds the other end of stdin for as long as it lives."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
