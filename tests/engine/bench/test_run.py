"""Runs of the bench, small and without Apache: every job, the report, what goes wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.bench import apache, kafka, readme_table, report, stores
from engine.bench.apache import Apache, Missing
from engine.bench.child import run as run_task
from engine.bench.jobs import BY_NAME, FLOORS, JOBS, LIMITS, Against
from engine.bench.measure import Measurement, measure
from engine.bench.options import BenchOptions
from engine.bench.results import Cache, JobPlace, Results, Side
from engine.bench.run import as_installed, run
from engine.bench.spark import SparkMeasure, split_verdicts
from engine.bench.stores import CopyState, KeptStore
from engine.bench.timing import MeasureTask, Timer
from engine.bench.work import BATCH, WORK
from engine.bench.workload import MIB, growing, workloads
from engine.errors import CannotRepair, InvalidArgument, StorageError
from engine.format import names
from engine.read_store import ReadStore
from tests.engine.bench.conftest import PROGRAM, make
from tests.support.wide import WIDE

pytestmark = pytest.mark.leaves()

INSIDE = [job for job in JOBS if job.inside]


def test_measured_processes_keep_their_bytecode() -> None:
    assert as_installed({"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/h"}) == {"HOME": "/h"}


# --- each job, in this process ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", INSIDE, ids=lambda job: job.name)
def test_each_job_does_its_work(job, plain: KeptStore, tmp_path: Path) -> None:
    root = tmp_path / "run"
    if job.state is None:
        root.mkdir()
    else:
        plain.copy(job.state, root)
    stamps = plain.stamps()
    timer = Timer()
    count = 2 * BATCH if job.name in {"put-batch", "put-items"} else min(plain.messages, 512)
    task = MeasureTask(job.name, plain.workload, root, plain.messages, count, job.callers)
    done = run_task(task, timer)
    assert timer.seconds > 0
    assert done.messages in (count, plain.messages) or (job.name.startswith("get") and done.messages >= count)
    plain.demand_same(stamps)
    if job.state in (CopyState.LOG_ONLY, CopyState.CRASHED) or job.name == "reindex":
        assert not (root / names.ABORT).exists()
        with ReadStore(plain.workload.config(root)) as store:
            units = sum(store.max_offset(q.topic, q.queue_id) for q in store.queues())
            assert units == plain.messages
            assert len(store.query(plain.workload.topic(0), plain.workload.key_of(7)).messages) == 1
    if job.name.startswith("put"):
        with ReadStore(plain.workload.config(root)) as store:
            assert store.max_offset(plain.workload.topic(0), 0) == count


def test_every_job_has_its_work_and_every_floor_its_job() -> None:
    assert {job.name for job in INSIDE} == {LIMITS, *WORK}
    for floor in FLOORS:
        job = BY_NAME[floor.job]
        assert floor.workload in job.workloads
        assert floor.against is not Against.INSIDE or BY_NAME[floor.peer or floor.job].apache


def test_what_many_splits_cost_is_held_against_few() -> None:
    times = {("verify", 4): 2.0, ("verify", 64): 2.8, ("reindex", 4): 1.0, ("reindex", 64): 1.6, ("read", 64): 9.0}
    measures = [SparkMeasure(job, "spark", 2, splits, 1, 1, seconds) for (job, splits), seconds in times.items()]
    measures.append(SparkMeasure("verify", "spark", 1, 64, 1, 1, 9.0))  # on one core
    assert [(text.partition(",")[0], met) for text, met in split_verdicts(measures)] == [
        ("verify in 64 splits takes 1.40 × the time of 4", True),
        ("reindex in 64 splits takes 1.60 × the time of 4", False),
    ]


def test_a_damaged_log_is_no_figure(plain: KeptStore, tmp_path: Path) -> None:
    root = plain.copy(CopyState.BARE, tmp_path / "run")
    log = root / names.COMMITLOG / names.segment_name(0)
    data = bytearray(log.read_bytes())
    log.unlink()  # a hard link
    data[5000] ^= 0xFF
    log.write_bytes(data)
    with pytest.raises(StorageError, match="not sound"):
        run_task(MeasureTask("verify-crc", plain.workload, root, plain.messages), Timer())


def test_a_profile_names_what_was_called(plain: KeptStore, tmp_path: Path) -> None:
    root = plain.copy(CopyState.BARE, tmp_path / "run")
    timer = Timer(tmp_path / "profile.txt")
    run_task(MeasureTask("verify-crc", plain.workload, root, plain.messages), timer)
    assert "verify.py" in (tmp_path / "profile.txt").read_text()


# --- stores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", CopyState)
def test_copies_are_as_they_say(state: CopyState, plain: KeptStore, tmp_path: Path) -> None:
    root = plain.copy(state, tmp_path / "run")
    assert (root / names.ABORT).exists() == (state in (CopyState.CRASHED, CopyState.LOG_ONLY))
    segments = sorted((root / names.COMMITLOG).iterdir())
    assert len(segments) == (2 if state in (CopyState.CRASHED, CopyState.LOG_ONLY) else 1)
    assert all(path.stat().st_size == plain.workload.segment for path in segments)
    assert len(segments) == 1 or segments[1].stat().st_blocks == 0
    whole = state in (CopyState.CRASHED, CopyState.CLOSED)
    assert (root / names.CONSUMEQUEUE).exists() == (root / names.INDEX).exists() == whole
    assert any((root / names.CHECKPOINT).read_bytes()) == whole
    stores.warm(root)
    assert stores.cool(root)


def test_a_kept_store_is_made_again_when_its_workload_differs(tmp_path: Path, plain: KeptStore) -> None:
    made: list[str] = []

    def counted(workload, root: Path) -> stores.Made:
        made.append(workload.key)
        return make(workload, root)

    first = stores.keep(plain.workload, tmp_path, counted)
    assert stores.keep(plain.workload, tmp_path, counted) == first
    other = stores.keep(replace(plain.workload, seed=2), tmp_path, counted)
    assert other.root == first.root
    assert len(made) == 2


def test_a_log_that_a_measure_wrote_is_noticed(plain: KeptStore, tmp_path: Path) -> None:
    kept = stores.keep(plain.workload, tmp_path, make)
    stamps = kept.stamps()
    path = kept.root / names.COMMITLOG / names.segment_name(0)
    path.write_bytes(path.read_bytes())
    with pytest.raises(CannotRepair):
        kept.demand_same(stamps)


def test_no_room_is_said_before() -> None:
    with pytest.raises(StorageError, match="are needed"):
        stores.demand_space(Path("/"), 1 << 60)


# --- measuring a process ---------------------------------------------------------------------------------------------


def python(code: str) -> list[str]:
    return [PROGRAM[0], "-c", code]


def test_a_process_is_measured_from_outside() -> None:
    # Memory is looked at now and then: on a busy machine the last look may come while the bytes are being made.
    code = 'b = bytearray(160 << 20); import time; time.sleep(0.5); print(\'{"seconds": 1.5, "messages": 7}\')'
    found = measure(python(code), answers=True, timeout=60)
    assert found.wall >= 0.5
    assert (found.seconds, found.messages) == (1.5, 7)
    assert found.peak_rss >= found.peak_anon >= 80 << 20


@pytest.mark.parametrize(
    ("code", "timeout", "said"),
    [
        ("import sys; sys.exit('it broke')", 60, "it broke"),
        ('print(\'{"error": "no such store"}\'); raise SystemExit(1)', 60, "no such store"),
        ("print('no json')", 60, "exit code 0"),
        ("import time; time.sleep(60)", 1, "ended after"),
    ],
)
def test_a_process_that_fails_says_why(code: str, timeout: int, said: str) -> None:
    with pytest.raises(StorageError, match=said):
        measure(python(code), answers=True, timeout=timeout)


def test_an_exit_code_that_tells_of_findings_is_no_failure() -> None:
    assert measure(python("raise SystemExit(1)"), answers=False, timeout=60, exits=(0, 1)).wall > 0
    with pytest.raises(StorageError, match="exit code 1"):
        measure(python("raise SystemExit(1)"), answers=False, timeout=60)


# --- whole runs ------------------------------------------------------------------------------------------------------


BESIDE_APACHE = ("recover-rebuilt", "recover-queues", "reindex")
"""Their kernels are loaded in a process each; `make interop` runs them in whole runs, too, and `make sweep` here."""


@pytest.mark.wide
def test_a_run_without_apache(tmp_path: Path, few_files: None) -> None:
    jobs = [job for job in JOBS if job.command or job.name in (LIMITS, "put-batch", "query")]
    jobs = [job for job in jobs if WIDE or job.name not in BESIDE_APACHE]
    names = tuple(job.name for job in jobs)
    wanted = BenchOptions(
        PROGRAM, tmp_path / "report", MIB, ("b128", "sparse"), names, 1, apache=False, work=tmp_path / "work"
    )
    told: list[str] = []
    results = run(wanted, lambda done, total, label: told.append(f"{done}/{total} {label}"))
    assert results.failures == []
    text = (tmp_path / "report" / report.REPORT).read_text()
    assert "not measured: not asked for" in text
    for job in jobs:
        assert f"## {job.name}: " in text
    said = json.loads((tmp_path / "report" / report.DATA).read_text())
    measured = {(m["job"], m["workload"], m["side"]) for m in said["measures"]}
    for job in jobs:
        workload = "sparse" if job.workloads == ("sparse",) else "b128"
        assert not job.inside or (job.name, workload, "ours") in measured
        assert job.command is None or (job.name, workload, "rstore command") in measured
    assert all(sample["wall"] > 0 for m in said["measures"] for sample in m["samples"])
    assert told
    assert not (tmp_path / "work" / "run").exists()


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few sparse files instead of a hundred."""
    from engine.bench import options as module

    def fewer(size: int = MIB):
        found = workloads(size)
        found["sparse"] = replace(found["sparse"], size=3 * size)
        return found

    monkeypatch.setattr(module, "workloads", fewer)


@pytest.mark.parametrize(
    "changes",
    [
        {"workloads": ("b2k",)},
        {"jobs": ("sleep",)},
        {"size": 5},
        {"size": 1 << 40},
        {"workloads": ("b64k",), "jobs": ("help",)},
    ],
)
def test_what_there_is_not_is_refused(changes, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        run(replace(BenchOptions(PROGRAM, tmp_path / "out"), **changes))
    assert not (tmp_path / "out").exists()


def test_settings_of_ones_own_are_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSTORE_CONF", str(tmp_path / "nowhere.conf"))
    wanted = BenchOptions(PROGRAM, tmp_path / "report", MIB, ("b1k",), ("verify-crc",), 1, apache=False)
    assert run(wanted).failures == []


def test_a_measure_that_fails_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    broken = (PROGRAM[0], "-c", "import sys; sys.exit('no such program')")
    wanted = BenchOptions(broken, tmp_path / "report", MIB, ("b1k",), ("verify-crc",), 2, apache=False)
    results = run(wanted)
    (failure,) = results.failures
    assert failure.startswith("verify-crc on b1k, rstore command: ")
    assert "no such program" in (tmp_path / "report" / report.REPORT).read_text()
    assert len(results.samples[JobPlace("verify-crc", "b1k"), Side.OURS]) == 2


def test_a_measure_that_takes_too_long_is_ended_and_not_made_again(tmp_path: Path, few_files: None) -> None:
    slow = (PROGRAM[0], "-c", "import time; time.sleep(60)")
    wanted = BenchOptions(slow, tmp_path / "report", MIB, ("sparse",), ("help",), 2, apache=False, limit=1)
    results = run(wanted)
    assert results.failures == ["help on sparse, rstore command: ended after 1 s (see --limit)"]
    assert "ended after 1 s" in (tmp_path / "report" / report.REPORT).read_text()


def test_a_cold_run_says_how(tmp_path: Path) -> None:
    wanted = BenchOptions(
        PROGRAM, tmp_path / "out", MIB, ("b1k",), ("verify-crc", "query"), 1, (Cache.COLD,), False, tmp_path / "work"
    )
    results = run(wanted)
    assert {place.job: place.cache for place in results.places() if place.job != LIMITS} == {
        "verify-crc": Cache.COLD,
        "query": Cache.WARM,
    }
    assert "cold by" in results.settings


def test_growing_logs(tmp_path: Path) -> None:
    growth = ("growth-1", "growth-4")
    wanted = BenchOptions(
        PROGRAM, tmp_path / "out", MIB, growth, (), 1, growth=True, apache=False, work=tmp_path / "work"
    )
    results = run(wanted)
    assert results.failures == []
    rows = {(job, files): (messages, one, gib) for job, files, messages, one, gib in results.growth()}
    assert set(rows) == {(job, files) for job in ("recover-rebuilt", "verify-crc") for files in (1, 4)}
    assert rows["verify-crc", 4][0] == 4 * rows["verify-crc", 1][0] == 4 * growing(MIB)["growth-1"].per_segment()
    assert all(one > 0 and gib > 0 for _, one, gib in rows.values())
    assert "## Growth" in (tmp_path / "out" / report.REPORT).read_text()
    with pytest.raises(InvalidArgument):
        replace(wanted, growth=False).checked()


# --- the report ------------------------------------------------------------------------------------------------------


def sample(seconds: float, messages: int = 1000, wall: float = 2.0, **more: float) -> Measurement:
    return Measurement(wall, 1.0, seconds, seconds * 1.5, messages, 1 << 20, 200 << 20, 100 << 20, more)


def results_of(*rows: tuple[str, str, Side, Measurement]) -> Results:
    found = Results(facts={"processor": "p|q"}, settings={"log": "1 MiB"}, apache="4.9.8")
    for job, workload, side, one in rows:
        found.add(JobPlace(job, workload), side, one)
    return found


def verdict_of(results: Results, job: str, against: Against):
    (found,) = [v for v in results.verdicts() if v.floor.job == job and v.floor.against is against]
    return found


def test_ratios_are_of_medians() -> None:
    results = results_of(
        *(("recover-rebuilt", "b1k", Side.OURS, sample(s)) for s in (1.0, 9.0, 2.0)),
        *(("recover-rebuilt", "b1k", Side.APACHE, sample(s, wall=6.0)) for s in (9.0, 1.0, 20.0)),
        ("recover-rebuilt", "b1k", Side.COMMAND, sample(1.0, wall=3.0)),
    )
    place = JobPlace("recover-rebuilt", "b1k")
    assert results.inside_ratio(place) == pytest.approx(4.5)
    assert results.whole_ratio(place) == pytest.approx(2.0)
    assert verdict_of(results, "recover-rebuilt", Against.INSIDE).met is True
    assert verdict_of(results, "recover-rebuilt", Against.MEMORY).measured == pytest.approx(100)


def test_a_batch_is_held_against_single_puts() -> None:
    results = results_of(
        ("put-batch", "b128", Side.OURS, sample(1.0, 2000)),
        ("put-batch", "b128", Side.APACHE, sample(0.1, 2000)),
        ("put-one", "b128", Side.APACHE, sample(1.5, 1000)),
    )
    assert verdict_of(results, "put-batch", Against.INSIDE).measured == pytest.approx(3.0)


def test_the_crc_limit_is_the_fastest_library() -> None:
    results = results_of(
        (LIMITS, "b1k", Side.OURS, sample(1.0, read=0.1, zlib=0.4, isal=0.2)),
        ("verify-crc", "b1k", Side.OURS, sample(0.4)),
    )
    assert results.crc_limit("b1k") == ("isal", 0.2)
    verdict = verdict_of(results, "verify-crc", Against.CRC)
    assert (verdict.measured, verdict.met) == (pytest.approx(0.5), False)
    assert verdict_of(results, "verify-crc", Against.INSIDE).met is None


def test_what_is_missed_says_what_binds_it(tmp_path: Path) -> None:
    results = results_of(
        ("recover-rebuilt", "b1k", Side.OURS, sample(4.0)), ("recover-rebuilt", "b1k", Side.APACHE, sample(4.0))
    )
    results.profiles["recover-rebuilt", "b1k"] = (
        "   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n"
        "        1    0.100    0.100    3.000    3.000 a.py:1(caller)\n"
        "        1    2.900    2.900    2.900    2.900 b.py:1(the_hot_one)\n"
    )
    report.write(results, tmp_path)
    text = (tmp_path / report.REPORT).read_text()
    assert "MISSED" in text
    assert "busy 1.50 times" in text
    assert text.index("the_hot_one") < text.index("caller")
    assert "p\\|q" in text or "p|q" in text
    assert (tmp_path / report.PROFILES / "recover-rebuilt-b1k.txt").exists()


def test_the_plot_has_every_ratio(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results = results_of(
        ("recover-rebuilt", "b1k", Side.OURS, sample(1.0)), ("recover-rebuilt", "b1k", Side.APACHE, sample(4.0))
    )
    report.write(results, tmp_path)
    assert ">recover-rebuilt b1k<" in (tmp_path / report.PLOT).read_text()
    assert f"]({report.PLOT})" in (tmp_path / report.REPORT).read_text()


def test_apache_is_asked_with_the_same_settings(plain: KeptStore) -> None:
    peer = Apache(Path("/usr/bin/java"), "17", "x.jar")
    task = MeasureTask("put-one", plain.workload, plain.root, plain.messages, 100)
    words = peer.command("put-one", task, {"flushDiskType": "SYNC_FLUSH"})
    for word in ("set.mappedFileSizeCommitLog=500000", "set.flushDiskType=SYNC_FLUSH", "body=128", "count=100"):
        assert word in words


def test_the_tables_of_the_readme_are_of_medians(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = results_of(
        *(("recover-queues", "b128", Side.OURS, sample(s)) for s in (0.1, 0.2)),
        *(("recover-queues", "b128", Side.COMMAND, sample(0.1, wall=w)) for w in (1.0, 9.0, 1.25)),
        *(("recover-queues", "b128", Side.APACHE, sample(0.1, wall=w)) for w in (3.0, 1.0, 9.0)),
        ("verify-crc", "b1k", Side.COMMAND, sample(0.1, wall=1.0)),
        ("put-batch", "b1k", Side.OURS, sample(1.0, 2000)),
        ("put-batch", "b1k", Side.APACHE, sample(0.1, 2000)),
        ("put-one", "b1k", Side.APACHE, sample(1.5, 1000)),
        *(("status", "sparse", Side.COMMAND, sample(0.1, wall=w)) for w in (0.25, 0.3, 9.0)),
    )
    report.write(results, tmp_path)
    monkeypatch.setattr(readme_table, "MEASURED", tmp_path / "bench.json")
    monkeypatch.setattr(readme_table, "README", tmp_path / "README.md")
    places = "\n\n".join(f"{readme_table.begin(name)}\nold\n{readme_table.END}" for name in readme_table.TABLES)
    (tmp_path / "README.md").write_text(f"before\n\n{places}\n\nbehind\n")
    assert readme_table.main([str(tmp_path / report.DATA)]) == 0
    text = (tmp_path / "README.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert "| recovery of what a killed broker leaves, untouched | 2.4 | - |" in rows
    assert "| put in batches of a client's bytes, against its puts one by one | - | 3.0 |" in rows
    assert "| `status`, 100 segments (100 GiB, nearly empty) | 0.30 |" in rows
    assert len(rows) == 3 + 3, "what has no peer is no row"
    assert text.startswith("before\n\n")
    assert text.endswith(f"{readme_table.END}\n\nbehind\n")
    assert "old" not in text
    before = text
    assert readme_table.main([str(tmp_path / report.DATA)]) == 0
    assert (tmp_path / "README.md").read_text() == before
    assert readme_table.main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_a_command_is_held_against_another_one_on_the_same_store() -> None:
    results = results_of(
        ("plan-start", "large", Side.COMMAND, sample(0.1, wall=3.0)),
        ("check", "large", Side.COMMAND, sample(0.1, wall=1.5)),
    )
    verdict = verdict_of(results, "plan-start", Against.OTHER)
    assert (verdict.measured, verdict.met) == (pytest.approx(2.0), False)
    assert report.against_text(verdict) == "seconds, whole process, to those of check"


def test_dump_is_held_against_kafkas() -> None:
    results = results_of(
        ("dump", "b1k", Side.COMMAND, sample(0.1, wall=2.0)), ("dump", "b1k", Side.KAFKA, sample(0.1, wall=5.0))
    )
    verdict = verdict_of(results, "dump", Against.KAFKA)
    assert (verdict.measured, verdict.met) == (pytest.approx(2.5), True)


def test_the_report_has_both_dumps_messages_a_second(tmp_path: Path) -> None:
    results = results_of(
        ("dump", "b1k", Side.COMMAND, sample(0.1, wall=0.5)), ("dump", "b1k", Side.KAFKA, sample(0.1, wall=2.0))
    )
    report.write(results, tmp_path)
    text = (tmp_path / report.REPORT).read_text()
    assert "b1k, messages/s of the whole process: rstore 2,000, kafka-dump-log 500." in text
    assert "| b1k | warm | rstore command | 0.500 | 4.00 |" in text
    assert "| b1k | warm | kafka-dump-log | 2.000 |  |" in text


def test_where_kafka_is_missing_the_report_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Apache:
        raise Missing("Java is not installed: no java program in JAVA_HOME or PATH")

    for module in (kafka, apache):
        monkeypatch.setattr(module, "find", missing)
    results = run(BenchOptions(PROGRAM, tmp_path / "report", MIB, ("b1k",), ("dump",), 1))
    assert results.failures == []
    assert {side for place, side in results.samples if place.job == "dump"} == {Side.COMMAND}
    line = "- kafka-dump-log: not measured: Java is not installed: no java program in JAVA_HOME or PATH"
    assert line in (tmp_path / "report" / report.REPORT).read_text().splitlines()


def test_floors_of_a_cold_page_cache_are_their_own() -> None:
    results = results_of(
        ("recover-queues", "b1k", Side.COMMAND, sample(1.0, wall=2.0)),
        ("recover-queues", "b1k", Side.APACHE, sample(1.0, wall=4.0)),
    )
    assert [(v.floor.cold, v.met) for v in results.verdicts() if v.floor.job == "recover-queues"] == [(False, True)]
    place = JobPlace("recover-queues", "b1k", Cache.COLD)
    results.add(place, Side.COMMAND, sample(1.0, wall=5.0))
    results.add(place, Side.APACHE, sample(1.0, wall=4.0))
    verdicts = {v.floor.cold: v for v in results.verdicts() if v.floor.job == "recover-queues"}
    assert verdicts[True].met is False
    assert report.against_text(verdicts[True]) == "ratio, whole process, cold"
