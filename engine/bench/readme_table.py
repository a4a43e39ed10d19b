"""The table of README.md, made from a report: whole process against whole process, as users type the command.

    python -m engine.bench.readme_table build/bench/report.json

puts the medians that the table needs into fixtures/bench.json of this clone, and the table into its README.md. A test
holds the one against the other.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.bench.jobs import BY_NAME, PLAIN
from engine.bench.report_table import table
from engine.bench.results import Cache, Side

BEGIN, END = "<!-- made by engine.bench.readme_table -->", "<!-- end of the table -->"
ROWS = (
    ("recover-queues", "recovery of what a killed broker leaves, untouched"),
    ("recover-rebuilt", "recovery of the log alone: queues and index rebuilt"),
    ("verify-crc", "`verify-crc` against Apache's recovery scan"),
    ("reindex", "`reindex` against its full rebuild"),
)
HEADS = ("times as fast as Apache, whole processes", "128-byte bodies", "1 KiB bodies")
_WORKLOADS = tuple(reversed(PLAIN))
assert _WORKLOADS == ("b128", "b1k")
_HERE = Path(__file__).resolve().parents[2]
MEASURED = _HERE / "fixtures" / "bench.json"
README = _HERE / "README.md"


def medians(report: Mapping[str, Any]) -> dict[str, Any]:
    """What the table needs of report.json: the machine, seconds of whole processes by job, workload, cache and side."""
    wanted = [
        measure
        for measure in report["measures"]
        if measure["job"] in dict(ROWS)
        and measure["workload"] in _WORKLOADS
        and measure["side"] in (Side.COMMAND.value, Side.APACHE.value)
    ]
    return {
        "machine": report["machine"],
        "settings": report["settings"],
        "apache": report["apache"],
        "seconds": [
            {
                **{name: measure[name] for name in ("job", "workload", "cache", "side")},
                "median": round(statistics.median(sample["wall"] for sample in measure["samples"]), 3),
            }
            for measure in wanted
        ],
    }


def lines(measured: Mapping[str, Any]) -> Iterator[str]:
    """The table's lines, from `medians`; a row for each job and cache that was measured."""
    seconds = {
        (one["job"], one["workload"], one["cache"], one["side"]): float(one["median"]) for one in measured["seconds"]
    }
    rows = []
    for job, label in ROWS:
        for cache in Cache:
            cells = [_cell(seconds, job, workload, cache.value) for workload in _WORKLOADS]
            if any(cells):
                cold = ", page cache cold" if cache is Cache.COLD else ""
                rows.append([label + cold, *(cell or "-" for cell in cells)])
    yield from table(HEADS, rows)


def _cell(seconds: Mapping[tuple[str, str, str, str], float], job: str, workload: str, cache: str) -> str | None:
    assert BY_NAME[job].command
    ours, theirs = (seconds.get((job, workload, cache, side.value)) for side in (Side.COMMAND, Side.APACHE))
    if ours is None or theirs is None:
        return None
    return f"{theirs / ours:.1f}"


def main(words: Sequence[str]) -> int:
    """Write both files. Exit code 2: no report was named."""
    if len(words) != 1:
        print("usage: python -m engine.bench.readme_table REPORT.json", file=sys.stderr)
        return 2
    measured = medians(json.loads(Path(words[0]).read_text(encoding="utf-8")))
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    front, rest = text.split(BEGIN)
    behind = rest.split(END)[1]
    README.write_text("\n".join([front + BEGIN, "", *lines(measured), "", END + behind]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
