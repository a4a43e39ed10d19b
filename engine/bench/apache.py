"""Apache RocketMQ 4.9.8's own store as the peer: the published jars, through Maven, and our programs around them.

The programs (`java/`) come with rstore as sources. They are built once, in a directory of the user's cache that is
named after their content.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from engine.bench.timing import MeasureTask
from engine.bench.work import BATCH, POOL, PULL
from engine.dataclass import dataclass
from engine.errors import StorageError
from engine.files.cache import cache_directory

VERSION = "4.9.8"
SOURCES = Path(__file__).parent / "java"
MAIN = "io.rstore.bench.Bench"
OPENS = tuple(
    f"--add-{kind}=java.base/{package}=ALL-UNNAMED"
    for kind in ("opens", "exports")
    for package in ("sun.nio.ch", "java.nio", "jdk.internal.ref")
)
"""What 4.9.8 needs of a JDK 17: it was written for Java 8."""
_OLDEST_JAVA = 17
_BUILD_S = 600.0
_JAR = "rstore-bench.jar"
_OUT_OF_REACH = re.compile(r"could not (transfer|resolve|find artifact)|unknown host|offline mode", re.IGNORECASE)


class Missing(Exception):
    """Java, Maven or Apache's jars are not to be had here; the message says which, in one sentence."""


@dataclass(frozen=True, slots=True)
class Apache:
    """The peer: the `java` program, its full version, and the class path."""

    java: Path
    version: str
    class_path: str

    def command(self, job: str, task: MeasureTask, settings: Mapping[str, str]) -> list[str]:
        """The words that run `job` (of `Bench.java`) on the task's store."""
        config = task.config
        sizes = {
            "mappedFileSizeCommitLog": config.mapped_file_size_commit_log,
            "mappedFileSizeConsumeQueue": config.mapped_file_size_consume_queue,
            "maxHashSlotNum": config.max_hash_slot_num,
            "maxIndexNum": config.max_index_num,
        }
        words = {
            "root": task.root,
            "topic": task.workload.topic(0),
            "body": task.workload.body,
            "queues": task.workload.queues,
            "messages": task.messages,
            "count": task.count,
            "callers": task.callers,
            "batch": BATCH,
            "pool": POOL,
            "pull": PULL,
            "born": task.first_ms,
            "perMs": task.per_ms,
            "bytes": task.workload.size,
            **{f"set.{name}": value for name, value in {**sizes, **settings}.items()},
        }
        arguments = [f"{name}={value}" for name, value in words.items()]
        return [str(self.java), *OPENS, "-cp", self.class_path, MAIN, job, *arguments]


def find(cache: Path | None = None) -> Apache:
    """The peer, built first when it isn't there yet.

    Raises:
        Missing: it can't be had here. StorageError: our programs don't build.
    """
    java, version = find_java()
    return Apache(java, version, class_path(SOURCES, "Apache", cache))


def class_path(sources: Path, whose: str, cache: Path | None = None) -> str:
    """The class path of a Maven project of ours, which is built first when it isn't there yet; `whose` jars it needs.

    Raises:
        Missing: Maven or the jars can't be had here. StorageError: our program does not build.
    """
    place = (cache or cache_directory()) / f"bench-{sources.name.replace('_', '-')}-{_digest(sources)[:12]}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _alone(place / ".building"):
            if not (place / "target" / _JAR).is_file():
                _build(sources, place, whose)
    except OSError as error:
        raise Missing(f"{whose}'s side can't be built in {place}: {error.strerror or error}") from None
    target = place / "target"
    return f"{target / _JAR}{os.pathsep}{target / 'lib'}{os.sep}*"


def find_java() -> tuple[Path, str]:
    """The `java` program and its full version. Raises Missing: there is none, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    named = Path(home) / "bin" / "java" if home else None
    program = str(named) if named is not None and named.is_file() else shutil.which("java")
    if program is None:
        raise Missing("Java is not installed: no java program in JAVA_HOME or PATH")
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    version = re.search(r'version "(\d+)([^"]*)"', answer.stderr + answer.stdout)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        raise Missing(f"Java {_OLDEST_JAVA} or newer is needed, and {program} is older or does not run")
    return Path(program), version[1] + version[2]


def _files(sources: Path) -> list[Path]:
    return sorted(
        path for path in sources.rglob("*") if path.suffix in (".java", ".xml") and "target" not in path.parts
    )


def _digest(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in _files(sources):
        digest.update(str(path.relative_to(sources)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(sources: Path, place: Path, whose: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("Maven is not installed: no mvn program in PATH")
    for source in _files(sources):
        target = place / source.relative_to(sources)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    output = ""
    for mode in (["-o"], []):  # offline first: all that is needed after one run online
        try:
            built = subprocess.run(
                [maven, "-q", "-B", *mode, "package"],
                cwd=place,
                capture_output=True,
                text=True,
                timeout=_BUILD_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Missing(f"{whose}'s jars can't be downloaded: Maven did not finish within ten minutes") from None
        if built.returncode == 0:
            return
        output = " ".join((built.stdout + built.stderr).split())
    if _OUT_OF_REACH.search(output):
        raise Missing(f"{whose}'s jars are missing and can't be downloaded: Maven's repository can't be reached")
    raise StorageError(f"{whose}'s side of the bench does not build: {output[:400]}", path=place)
