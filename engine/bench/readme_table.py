"""The tables of README.md, made from a report: whole processes, what a running process does, what a user waits for.

    python -m engine.bench.readme_table build/bench/report.json

puts the medians that the tables need into fixtures/bench.json of this clone, and the tables into its README.md; those
of a report of some jobs, of the same machine, take the place of theirs. A test holds the one file against the other.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.bench.jobs import BY_NAME, PLAIN
from engine.bench.report_table import table
from engine.bench.results import Cache, Side
from engine.bench.workload import LARGE, SPARSE, START

END = "<!-- end of the table -->"
WHOLE = (
    ("recover-queues", "recovery of what a killed broker leaves, untouched"),
    ("recover-rebuilt", "recovery of the log alone: queues and index rebuilt"),
    ("verify-crc", "`verify-crc` against Apache's recovery scan"),
    ("reindex", "`reindex` against its full rebuild"),
)
INSIDE = (
    ("recover-rebuilt", "recovery of the log alone (ours is on disk when it ends; `load()` is not)", None),
    ("verify-crc", "`verify-crc` against Apache's recovery scan", None),
    ("reindex", "`reindex` against its full rebuild", None),
    ("open", "normal open of a closed store", None),
    ("put-batch", "put in batches of a client's bytes, against its puts one by one", "put-one"),
    ("put-one", "put one by one", None),
    ("put-sync-1", "put with SYNC_FLUSH, 1 caller", None),
    ("put-sync-16", "put with SYNC_FLUSH, 16 callers", None),
    ("put-sync-64", "put with SYNC_FLUSH, 64 callers", None),
    ("get-raw", "get, 32 a call, the records as stored", None),
    ("get-columns", "get, 32 a call, as columns (against decoded objects)", None),
    ("get-decoded", "get, 32 a call, decoded objects", None),
    ("query", "`query` by key", None),
)
"""Jobs, what they are called in the table, and the job whose Apache figure they are held against (None: their own)."""
SECONDS = (
    ("check", LARGE, "`check`, 8 GiB"),
    ("plan-start", LARGE, "`plan-start`, 8 GiB as a killed broker leaves them"),
    ("dump", "b1k", "`dump commitlog --json`, 1 GiB of 1 KiB bodies"),
    ("get-json", "b1k", "`get --json` of 200,000 messages, the same"),
    ("status", SPARSE, "`status`, 100 segments (100 GiB, nearly empty)"),
    ("doctor", SPARSE, "`doctor`, the same"),
    ("expire", SPARSE, "`expire --force --dry-run`, the same"),
    ("get-first", SPARSE, "`get` of one message, the same"),
    ("start-verify-crc", START, "`verify-crc`, 24 MiB: its start"),
    ("start-recover", START, "`recover`, the same as a killed process leaves it"),
    ("start-check", START, "`check`, the same"),
    ("help", SPARSE, "`rstore --help`"),
    ("put-jsonl", "b1k", "`put --jsonl` of 200,000 messages of 1 KiB"),
)
_WORKLOADS = tuple(reversed(PLAIN))
assert _WORKLOADS == ("b128", "b1k")
_BODIES = ("128-byte bodies", "1 KiB bodies")
_COLD = {Cache.WARM: "", Cache.COLD: ", page cache cold"}
_HERE = Path(__file__).resolve().parents[2]
MEASURED = _HERE / "fixtures" / "bench.json"
README = _HERE / "README.md"

Key = tuple[str, str, str, str]
"""Job, workload, cache and side."""


def begin(name: str) -> str:
    """The line above a table."""
    return f"<!-- made by engine.bench.readme_table: {name} -->"


def medians(report: Mapping[str, Any]) -> dict[str, Any]:
    """What the tables need of report.json: the machine, and the medians of each measure that is in one of them."""
    jobs = {*dict(WHOLE), *(job for job, _, _ in INSIDE), *(job for job, _, _ in SECONDS)}
    wanted = [
        measure
        for measure in report["measures"]
        if measure["job"] in jobs and measure["workload"] in (*_WORKLOADS, LARGE, SPARSE, START)
    ]
    return {
        "machine": report["machine"],
        "settings": report["settings"],
        "apache": report["apache"],
        "measures": [
            {
                **{name: measure[name] for name in ("job", "workload", "cache", "side")},
                "wallSeconds": round(statistics.median(sample["wall"] for sample in measure["samples"]), 3),
                "microsecondsPerMessage": _per_message(measure["samples"]),
            }
            for measure in wanted
        ],
    }


def combined(before: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured, and of what was measured before what is not in it. Raises ValueError: on another machine."""
    new, old = ({_key(one): one for one in some["measures"]} for some in (measured, before))
    if old.keys() <= new.keys():
        return dict(measured)
    for name in ("machine", "apache"):
        if before[name] != measured[name]:
            raise ValueError(f"fixtures/bench.json has measures of {before[name]}: a report of all jobs is needed")
    return {**before, "measures": [new.pop(key, one) for key, one in old.items()] + list(new.values())}


def _per_message(samples: Sequence[Mapping[str, Any]]) -> float | None:
    """The median, inside the job; None where a process did not measure itself."""
    per_message = [1e6 * one["seconds"] / one["messages"] for one in samples if one["seconds"] is not None]
    return round(statistics.median(per_message), 4) if per_message else None


def whole(measured: Mapping[str, Any]) -> Iterator[str]:
    """How many times as fast as Apache, process against process; a row for each job and cache that was measured."""
    walls = _by_key(measured, "wallSeconds")
    heads = ("times as fast as Apache, whole processes", *_BODIES)
    yield from table(heads, list(_ratios(walls, [(job, label, job) for job, label in WHOLE], Side.COMMAND)))


def inside(measured: Mapping[str, Any]) -> Iterator[str]:
    """The same without the start of a process, by message; page cache warm."""
    per_message = _by_key(measured, "microsecondsPerMessage")
    warm = {key: value for key, value in per_message.items() if Cache.WARM.value in key}
    rows = _ratios(warm, [(job, label, peer or job) for job, label, peer in INSIDE], Side.OURS)
    yield from table(("times as fast as Apache, starts not counted", *_BODIES), list(rows))


def seconds(measured: Mapping[str, Any]) -> Iterator[str]:
    """What a user waits for."""
    walls = _by_key(measured, "wallSeconds")
    rows = []
    for job, workload, label in SECONDS:
        for cache in Cache:
            value = walls.get((job, workload, cache.value, Side.COMMAND.value))
            if value is not None:
                rows.append((label + _COLD[cache], f"{value:.1f}" if value >= 1 else f"{value:.2f}"))
    yield from table(("command, whole process", "s"), rows, numbers=(1,))


TABLES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "whole": whole,
    "inside": inside,
    "seconds": seconds,
}


def _key(measure: Mapping[str, Any]) -> Key:
    return measure["job"], measure["workload"], measure["cache"], measure["side"]


def _by_key(measured: Mapping[str, Any], value: str) -> dict[Key, float]:
    return {_key(one): float(one[value]) for one in measured["measures"] if one[value] is not None}


def _ratios(figures: Mapping[Key, float], rows: Sequence[tuple[str, str, str]], side: Side) -> Iterator[list[str]]:
    """Label and ratios of each job (and its peer) and cache of which there is one."""
    for job, label, peer in rows:
        assert BY_NAME[job].apache
        for cache in Cache:
            cells = []
            for workload in _WORKLOADS:
                ours = figures.get((job, workload, cache.value, side.value))
                theirs = figures.get((peer, workload, cache.value, Side.APACHE.value))
                cells.append(_ratio(theirs / ours) if ours and theirs else None)
            if any(cells):
                yield [label + _COLD[cache], *(one or "-" for one in cells)]


def _ratio(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def filled(text: str, measured: Mapping[str, Any]) -> str:
    """README.md's text with its tables made anew. Raises ValueError: a table has no place in it."""
    for name, lines in TABLES.items():
        front, rest = text.split(begin(name))
        _, after = rest.split(END, 1)
        text = "\n".join([front + begin(name), "", *lines(measured), "", END + after])
    return text


def main(words: Sequence[str]) -> int:
    """Write both files. Exit code 2: no report was named. Raises ValueError: see `combined`."""
    if len(words) != 1:
        print("usage: python -m engine.bench.readme_table REPORT.json", file=sys.stderr)
        return 2
    measured = medians(json.loads(Path(words[0]).read_text(encoding="utf-8")))
    if MEASURED.exists():
        measured = combined(json.loads(MEASURED.read_text(encoding="utf-8")), measured)
    text = filled(README.read_text(encoding="utf-8"), measured)
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    README.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
