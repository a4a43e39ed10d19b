"""Tables and numbers as report.md has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.bench.results import Cache, JobPlace, Results


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> Iterator[str]:
    """The lines of a table; `numbers`: the columns that are."""
    yield f"| {' | '.join(heads)} |"
    yield "|" + "|".join("---:" if i in numbers else "---" for i in range(len(heads))) + "|"
    for row in rows:
        yield f"| {' | '.join(map(cell, row))} |"


def cell(text: str) -> str:
    """A text that a cell can hold."""
    return " ".join(text.split()).replace("|", "\\|")


def verdict_word(met: bool | None) -> str:
    """Whether a floor is met; None: nobody knows."""
    return "not measured" if met is None else "met" if met else "MISSED"


def ratio_text(value: float | None) -> str:
    """A ratio, or a dash."""
    return "-" if value is None else f"{value:.2f}"


def ratios(results: Results) -> list[tuple[JobPlace, str, float]]:
    """What is compared with Apache: the place, its name, how many times as fast."""
    rows = []
    for place in results.places():
        for ratio, kind in ((results.inside_ratio(place), ""), (results.whole_ratio(place), ", whole process")):
            if ratio is not None:
                cold = ", cold" if place.cache is Cache.COLD else ""
                rows.append((place, f"{place.job} {place.workload}{cold}{kind}", ratio))
    return rows
