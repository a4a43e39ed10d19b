"""ratios.svg: how many times as fast as Apache, job by job. Drawn by matplotlib, where that is installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from engine.bench.jobs import FLOORS, Against
from engine.bench.report_table import ratios
from engine.bench.results import JobPlace, Results

_FASTER, _SLOWER = "#2a7f62", "#b5523b"


def plot(results: Results, path: Path) -> bool:
    """Draw it; False where there is nothing to draw, or nothing to draw with.

    Raises:
        OSError.
    """
    rows = ratios(results)
    if not rows:
        return False
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError:
        return False
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rstore", "font.size": 9}):
        figure = figures.Figure(figsize=(9, 1.4 + 0.28 * len(rows)), layout="constrained")
        axes = figure.subplots()
        values = [ratio for _, _, ratio in rows]
        colours = [_FASTER if value >= 1 else _SLOWER for value in values]
        axes.barh(range(len(rows)), [value - 1 for value in values], left=1, color=colours, height=0.7)
        axes.set_yticks(range(len(rows)), [name for _, name, _ in rows])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.axvline(1, color="black", linewidth=1)
        for row, (place, name, ratio) in enumerate(rows):
            axes.annotate(f" {ratio:.2f} ", (ratio, row), va="center", ha="left" if ratio >= 1 else "right")
            asked = _floor(place, whole=name.endswith("whole process"))
            if asked is not None:
                axes.plot([asked, asked], [row - 0.45, row + 0.45], color="black", linewidth=2)
        axes.set_xlim(min(0.5, *values) / 2, max(2.0, *values) * 2)
        axes.set_xlabel("times as fast as Apache RocketMQ 4.9.8 (thick mark: the floor)")
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, format="svg", metadata={"Date": None})
    return True


def _floor(place: JobPlace, *, whole: bool) -> float | None:
    against = Against.WHOLE if whole else Against.INSIDE
    for floor in FLOORS:
        if (floor.job, floor.workload, floor.against, floor.peer) == (place.job, place.workload, against, None):
            return floor.value
    return None
