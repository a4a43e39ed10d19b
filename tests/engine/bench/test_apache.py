"""Finding Apache's side: what is missing is said in one sentence, and nothing is built twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.bench import apache
from engine.errors import StorageError

JAVA_17 = """echo 'openjdk version "17.0.1" 2021-10-19' >&2"""
BUILDS = "echo built >> {log}; mkdir -p target/lib; : > target/rstore-bench.jar"


class Programs:
    """A PATH with programs of ours; `log` has a line for each run of mvn that built."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place / "bin"
        self.log = place / "log"
        self.place.mkdir()
        self.cache = place / "cache"
        monkeypatch.setenv("PATH", f"{self.place}{os.pathsep}/bin")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setattr(apache.shutil, "which", self._which)

    def add(self, name: str, does: str) -> None:
        """A shell script."""
        path = self.place / name
        path.write_text(f"#!/bin/sh\n{does.format(log=self.log)}\n")
        path.chmod(0o755)

    def _which(self, name: str) -> str | None:
        path = self.place / name
        return str(path) if path.exists() else None


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path, monkeypatch)


def test_it_is_built_once(programs: Programs) -> None:
    programs.add("java", JAVA_17)
    programs.add("mvn", BUILDS)
    first = apache.find(programs.cache)
    assert apache.find(programs.cache) == first
    assert programs.log.read_text() == "built\n"
    assert first.version == "17.0.1"
    (place,) = programs.cache.iterdir()
    assert (place / "src/main/java/io/rstore/bench/Bench.java").read_bytes() == (
        apache.SOURCES / "src/main/java/io/rstore/bench/Bench.java"
    ).read_bytes()


@pytest.mark.parametrize(
    ("java", "mvn", "said"),
    [
        (None, None, "Java is not installed"),
        ("""echo 'openjdk version "11.0.2"' >&2""", None, "Java 17 or newer is needed"),
        ("exit 1", None, "does not run"),
        (JAVA_17, None, "Maven is not installed"),
        (JAVA_17, "echo Could not transfer artifact; exit 1", "can't be reached"),
    ],
)
def test_what_is_missing_is_said(java: str | None, mvn: str | None, said: str, programs: Programs) -> None:
    for name, does in (("java", java), ("mvn", mvn)):
        if does is not None:
            programs.add(name, does)
    with pytest.raises(apache.Missing, match=said):
        apache.find(programs.cache)


def test_a_build_that_breaks_is_an_error_of_ours(programs: Programs) -> None:
    programs.add("java", JAVA_17)
    programs.add("mvn", "echo COMPILATION ERROR; exit 1")
    with pytest.raises(StorageError, match="COMPILATION ERROR"):
        apache.find(programs.cache)


def test_a_cache_that_cannot_be_written_is_told(programs: Programs, tmp_path: Path) -> None:
    programs.add("java", JAVA_17)
    (tmp_path / "file").touch()
    with pytest.raises(apache.Missing, match="can't be built"):
        apache.find(tmp_path / "file")
