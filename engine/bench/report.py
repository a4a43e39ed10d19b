"""The report: report.md for people, report.json with every sample, ratios.svg, profiles of what missed its floor."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.bench.jobs import BY_NAME, LIMITS, Against, Floor, Job
from engine.bench.kafka import NAME, TOOL
from engine.bench.plot import plot
from engine.bench.report_backups import backup_lines
from engine.bench.report_clients import client_lines
from engine.bench.report_replicated import replication_lines
from engine.bench.report_served import served_lines
from engine.bench.report_table import cell, ratio_text, table, verdict_word
from engine.bench.results import MIB, FloorVerdict, JobPlace, Results, Side
from engine.bench.spark import split_verdicts
from engine.bench.workload import GIB
from engine.errors import StorageError

REPORT, DATA, PLOT, PROFILES = "report.md", "report.json", "ratios.svg", "profiles"
_TOP = 6
_HOW = """\
Each measure is a process of its own on a store prepared afresh (the log by hard links, the rest copied and synced),
ours and Apache's in turn. The stores are made by Apache's own, whose process is killed when all is dispatched, and
recovery gets them untouched: queues, index and checkpoint as they are then, the abort file, the next segment.
(Without Java, and where files are only part full, the bench writes them itself.) Warm: every byte of the store was
read just before. Our seconds begin when modules are imported and kernels loaded (a run on a small store of the same
records comes first, untimed); Apache's begin when the JVM is up and the store object made: its classes are loaded and
compiled inside, as in every broker's start. Process seconds are those of the whole process, for ours of the command
as users type it, imports and loading of kernels included. Memory is VmHWM and the highest RssAnon, seen every 20 ms.
Both sides have the same file sizes and flush settings, Apache's defaults.
"""


_ON_SPARK = """\
Seconds a GiB of log, and the ratio to the engine alone on as many cores; medians, page cache warm. For `read` the
engine makes the same Arrow batches and drops them; Spark hands them to the JVM (a noop sink). reindex writes
elsewhere, on both sides. Memory is the peak of all Python workers together, which keep what an earlier job needed.
"""


def write(results: Results, directory: Path) -> None:
    """Write it all into `directory`, which is made when it is missing.

    Raises:
        StorageError: it can't be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / DATA).write_text(json.dumps(results.to_json(), indent=1) + "\n", encoding="utf-8")
        drawn = plot(results, directory / PLOT)
        if not drawn:
            (directory / PLOT).unlink(missing_ok=True)  # an older run's
        for old in (directory / PROFILES).glob("*.txt"):
            old.unlink()
        if results.profiles:
            (directory / PROFILES).mkdir(exist_ok=True)
        for key, text in results.profiles.items():
            (directory / PROFILES / _profile_name(*key)).write_text(text, encoding="utf-8")
        (directory / REPORT).write_text("\n".join(_lines(results, drawn=drawn)) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError((error.strerror or str(error)).lower(), path=error.filename) from None


def floor_text(verdict: FloorVerdict) -> tuple[str, str, str]:
    """The floor, what was found, and the word for it."""
    floor = verdict.floor
    return (
        f"{'≤' if floor.is_ceiling else '≥'} {_value(floor.against, floor.value)}",
        ("-" if verdict.measured is None else _value(floor.against, verdict.measured)),
        verdict_word(verdict.met),
    )


def _value(against: Against, value: float) -> str:
    if against is Against.CRC:
        return f"{100 * value:.0f} %"
    if against is Against.SECONDS:
        return f"{value:.3f} s"
    if against is Against.MEMORY:
        return f"{value:.0f} MiB"
    return f"{value:.2f} ×"


# --- report.md -------------------------------------------------------------------------------------------------------


def _lines(results: Results, *, drawn: bool) -> Iterator[str]:
    yield "# rstore bench"
    yield ""
    yield f"{time.strftime('%Y-%m-%d %H:%M:%S %z')}. Peer: {results.apache}."
    yield ""
    for name, value in {**results.facts, **results.settings}.items():
        yield f"- {name}: {value}"
    if drawn:
        yield ""
        yield f"![How many times as fast as Apache]({PLOT})"
    yield from _floors(results)
    for failure in results.failures:
        yield ""
        yield f"**Not measured**: {cell(failure)}"
    for ended in results.ended:
        yield ""
        yield f"**Ended**: {cell(ended)}"
    for name in dict.fromkeys(place.job for place in results.places()):
        yield from _limits(results) if name == LIMITS else _job(results, BY_NAME[name])
    yield from _growth(results)
    yield from _spark(results)
    yield from served_lines(results.served)
    yield from client_lines(results.clients)
    yield from replication_lines(results.replicated)
    yield from backup_lines(results.backups)
    yield from _how()


def _floors(results: Results) -> Iterator[str]:
    verdicts = results.verdicts()
    if not verdicts:
        return
    yield ""
    yield "## Floors"
    yield ""
    yield from table(
        ["job", "workload", "compared with", "required", "measured", ""],
        [[v.floor.job, v.floor.workload, against_text(v), *floor_text(v)] for v in verdicts],
        numbers=(3, 4),
    )
    shown: set[tuple[str, str]] = set()
    for floor in [verdict.floor for verdict in verdicts if verdict.met is False]:
        if (floor.job, floor.workload) not in shown:
            shown.add((floor.job, floor.workload))
            yield from _missed(results, floor)


def against_text(verdict: FloorVerdict) -> str:
    """What a floor is held against, in words."""
    peer = verdict.floor.peer
    cold = ", cold" if verdict.floor.cold else ""
    if verdict.floor.against is Against.OTHER:
        return f"seconds, whole process, to those of {peer}{cold}"
    if verdict.floor.against is Against.PLAIN:
        return f"{verdict.floor.against.value} ({peer})"
    return f"{verdict.floor.against.value}{cold}" + (f", against Apache's {peer}" if peer else "")


def _missed(results: Results, floor: Floor) -> Iterator[str]:
    """What binds what was missed: where its time goes, and how busy the processors were."""
    place = JobPlace(floor.job, floor.workload)
    yield ""
    busy = results.median(place, Side.OURS, lambda s: s.cpu / s.seconds if s.seconds and s.cpu is not None else None)
    text = f"**{floor.job} on {floor.workload}**:"
    if busy is not None:
        text += f" the processors were busy {busy:.2f} times its wall time."
    profile = results.profiles.get((floor.job, floor.workload))
    if profile is None:
        yield text
        return
    text += " A profile has one thread: where that waits, those that read ahead are at work."
    yield f"{text} Of its profile ([all of it]({PROFILES}/{_profile_name(floor.job, floor.workload)})), by own time:"
    yield ""
    yield "```"
    yield from _hottest(profile)
    yield "```"


def _hottest(profile: str) -> list[str]:
    """The lines of a profile with the most time of their own."""
    lines = profile.splitlines()
    head = next((i for i, line in enumerate(lines) if line.split()[:1] == ["ncalls"]), None)
    if head is None:
        return []
    rows = []
    for line in lines[head + 1 :]:
        words = line.split()
        if len(words) < 6:
            continue
        try:
            rows.append((float(words[1]), line))
        except ValueError:
            continue
    rows.sort(key=lambda row: -row[0])
    return [lines[head], *(line for _, line in rows[:_TOP])]


def _job(results: Results, job: Job) -> Iterator[str]:
    yield ""
    yield f"## {job.name}: {job.what}"
    yield ""
    if job.inside:
        yield f"Inside ours: {job.ours}."
    if job.apache is not None:
        yield f"Inside Apache's: {job.theirs}."
    if job.command is not None:
        yield f"Whole process: `rstore {' '.join(job.command)}`" + (", and the JVM." if job.apache is not None else ".")
    if job.kafka:
        yield f"Beside it: {NAME} ({' '.join(TOOL)}) on a log of Kafka's own with as many messages of the same size."
    places = [place for place in results.places() if place.job == job.name]
    if job.inside:
        yield ""
        yield from table(
            [
                "workload",
                "cache",
                "ours s",
                "Apache s",
                "ratio",
                "messages/s",
                "Apache's",
                "processor s",
                "Apache's",
                "ratio",
            ],
            [_inside_row(results, place) for place in places],
            numbers=range(2, 10),
        )
    yield ""
    yield from table(
        ["workload", "cache", "side", "process s", "ratio", "peak RSS MiB", "of it no file's MiB"],
        [row for place in places for row in _whole_rows(results, place)],
        numbers=range(3, 7),
    )
    yield from _more(results, places)
    if job.kafka:
        yield from _rates(results, places)


def _inside_row(results: Results, place: JobPlace) -> list[str]:
    ours, theirs = results.seconds(place, Side.OURS), results.seconds(place, Side.APACHE)
    own = results.median(place, Side.OURS, lambda sample: sample.cpu)
    other = results.median(place, Side.APACHE, lambda sample: sample.cpu)
    return [
        place.workload,
        place.cache.value,
        _seconds(ours),
        _seconds(theirs),
        ratio_text(results.inside_ratio(place)),
        _rate(results.per_message(place, Side.OURS)),
        _rate(results.per_message(place, Side.APACHE)),
        _seconds(own),
        _seconds(other),
        ratio_text(other / own if own and other is not None else None),
    ]


def _whole_rows(results: Results, place: JobPlace) -> Iterator[list[str]]:
    for side in Side:
        wall, memory = results.wall(place, side), results.memory(place, side)
        if wall is None or memory is None:
            continue
        peer = Side.KAFKA if BY_NAME[place.job].kafka else Side.APACHE
        ratio = ratio_text(results.whole_ratio(place, peer)) if side is Side.COMMAND else ""
        shown = "-" if side is Side.OURS else _seconds(wall)  # a small store came first: no figure for a whole process
        yield [
            place.workload,
            place.cache.value,
            side.value,
            shown,
            ratio,
            *(f"{value / MIB:.0f}" for value in memory),
        ]


def _rates(results: Results, places: Sequence[JobPlace]) -> Iterator[str]:
    """Messages a second of whole processes."""
    for place in places:
        rates = [
            f"{'rstore' if side is Side.COMMAND else NAME} {rate:,.0f}"
            for side in (Side.COMMAND, Side.KAFKA)
            if (rate := results.median(place, side, lambda sample: sample.messages / sample.wall))
        ]
        if rates:
            yield ""
            yield f"{place.workload}, messages/s of the whole process: {', '.join(rates)}."


def _more(results: Results, places: Sequence[JobPlace]) -> Iterator[str]:
    for place in places:
        for side in Side:
            samples = results.samples.get((place, side), [])
            for name in samples[0].more if samples else ():
                value = results.median(place, side, lambda sample, name=name: sample.more.get(name))  # type: ignore[misc]
                yield ""
                yield f"{place.workload}, {side.value}: {name} {_seconds(value)}."


def _limits(results: Results) -> Iterator[str]:
    job = BY_NAME[LIMITS]
    yield ""
    yield f"## {job.name}: {job.what}"
    yield ""
    yield f"{job.ours}; each on a map or a buffer of its own, a thread a core."
    for place in [place for place in results.places() if place.job == LIMITS]:
        size = results.median(place, Side.OURS, lambda sample: sample.size)
        names = list(dict.fromkeys(name for s in results.samples[place, Side.OURS] for name in s.more))
        rows = []
        for name in names:
            value = results.median(place, Side.OURS, lambda s, name=name: s.more.get(name))  # type: ignore[misc]
            if value and size is not None:
                rows.append([place.workload, name, _seconds(value), f"{size / value / 1e9:.1f}"])
        yield ""
        yield from table(["workload", "what", "s", "GB/s"], rows, numbers=(2, 3))
        for job_name in ("recover-rebuilt", "verify-crc", "check", "reindex"):
            share = results.crc_share(JobPlace(job_name, place.workload))
            if share is not None:
                yield ""
                yield f"{job_name} on {place.workload}: {100 * share:.1f} % of the fastest CRC library's speed."


def _growth(results: Results) -> Iterator[str]:
    rows = results.growth()
    if not rows:
        return
    yield ""
    yield "## Growth"
    yield ""
    yield "On logs of more and more files, a quarter of each full; what a message costs against that in one file."
    yield ""
    first = {job: one for job, _, _, one, _ in reversed(rows)}
    yield from table(
        ["job", "files", "messages", "µs a message", "s a GiB", "against the first"],
        [
            [job, str(files), f"{n:,}", f"{1e6 * one:.3f}", f"{gib:.3f}", f"{one / first[job]:.2f}"]
            for job, files, n, one, gib in rows
        ],
        numbers=range(1, 6),
    )


def _spark(results: Results) -> Iterator[str]:
    if not results.spark:
        return
    starts = ", ".join(f"{cores}: {seconds:.1f} s" for cores, seconds in results.spark_starts.items())
    yield ""
    yield "## The pipeline on Spark"
    yield ""
    yield from _ON_SPARK.splitlines()
    yield f"Spark's own start is in none of them; by cores: {starts}."
    for text, met in split_verdicts(results.spark):
        yield ""
        yield f"{text}: {verdict_word(met)}."
    heads = [
        "job",
        "on",
        "cores",
        "stores",
        "splits",
        "GiB",
        "s",
        "s a GiB",
        "ratio",
        "RSS MiB",
        "no file's MiB",
    ]
    alone = {(m.job, m.cores): m.per_gib for m in results.spark if m.on == "engine"}
    yield ""
    yield from table(
        heads,
        [
            [
                m.job,
                m.on,
                str(m.cores),
                str(m.stores),
                str(m.splits or "-"),
                f"{m.size / GIB:.3f}",
                _seconds(m.seconds),
                _seconds(m.per_gib),
                ratio_text(m.per_gib / alone[m.job, m.cores]),
                *((f"{m.rss / MIB:.0f}", f"{m.anon / MIB:.0f}") if m.on != "engine" else ("-", "-")),
            ]
            for m in sorted(results.spark, key=lambda m: m.job)
        ],
        numbers=range(2, 11),
    )


def _how() -> Iterator[str]:
    yield ""
    yield "## How it was measured"
    yield ""
    yield from _HOW.splitlines()


def _profile_name(job: str, workload: str) -> str:
    return f"{job}-{workload}.txt"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _rate(seconds: float | None) -> str:
    return "-" if not seconds else f"{1 / seconds:,.0f}"
