"""`rstore bench --spark`: every measure is made by real runs, and the report has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.bench.spark import CORES, JOBS, SPLITS, STORES
from tests.docs.markdown import section, tables
from tests.rstore_cli.conftest import process

pytestmark = pytest.mark.spark


@pytest.mark.usefixtures("spark")
def test_the_pipeline_is_measured(tmp_path: Path) -> None:
    words = ("bench", "--job", "spark", "--no-apache", "--size", "1M", "--rounds", "1", "--output", tmp_path / "out")
    running = process(*words, "--work", tmp_path / "work")
    _, err = running.communicate(timeout=280)
    assert (running.returncode, err) == (0, "")

    told = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert told["measures"] == []
    assert set(told["sparkStartSeconds"]) == {str(cores) for cores in CORES}
    seen = [(m["job"], m["on"], m["cores"], m["stores"], m["splits"]) for m in told["spark"]]
    expected = [(job, "engine", cores, 1, 0) for job in JOBS for cores in CORES]
    expected += [(job, "spark", 1, 1, 16) for job in JOBS]
    expected += [(job, "spark", 2, 1, splits) for job in JOBS for splits in SPLITS]
    expected += [(job, "spark", 2, stores, 0) for job in JOBS for stores in STORES]
    assert sorted(seen) == sorted(expected)
    assert all(m["seconds"] > 0 and m["bytes"] > 0 for m in told["spark"])
    assert any(m["workersRss"] > m["workersAnon"] > 10 << 20 for m in told["spark"])

    (rows,) = tables(section(tmp_path / "out" / "report.md", "The pipeline on Spark"))
    assert len(rows) == len(expected)
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"b1k", "b1k-part"}
