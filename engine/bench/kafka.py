"""Apache Kafka's `kafka-dump-log` beside `rstore dump`: on a log of its own with as many messages of the same size.

Our program around Kafka's published jars (`java_kafka/`) fills that log by Kafka's own `LogSegment`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from engine.bench import apache
from engine.bench.measure import Measurement, measure
from engine.bench.stores import KeptStore, remove
from engine.dataclass import dataclass

VERSION = "3.9.1"
"""That of java_kafka/pom.xml."""
SOURCES = Path(__file__).parent / "java_kafka"
NAME = "kafka-dump-log"
TOOL = ("kafka.tools.DumpLogSegments", "--print-data-log", "--deep-iteration")
_FILL = "io.rstore.bench.kafka.FillKafka"
_FILL_S = 1800


@dataclass(frozen=True, slots=True)
class Kafka:
    """The peer: the `java` program, its full version, and the class path."""

    java: Path
    version: str
    class_path: str

    def log_of(self, kept: KeptStore, work: Path) -> Path:
        """Where the log lies that has a message for each of the store's."""
        return work / f"kafka-{kept.workload.body}-{kept.messages}"

    def fill(self, kept: KeptStore, work: Path) -> Path:
        """That log, which is made when it isn't there. Raises StorageError: it can't be made."""
        log = self.log_of(kept, work)
        if not log.is_dir():
            made = log.with_suffix(".part")
            remove(made)
            words = [_FILL, f"root={made}", f"messages={kept.messages}", f"body={kept.workload.body}"]
            measure(self._command(words), answers=True, timeout=_FILL_S)
            os.replace(made, log)
        return log

    def dump(self, kept: KeptStore, log: Path, timeout: float) -> Measurement:
        """The tool over the whole log, into nothing: a whole process.

        Raises:
            StorageError: it failed. TookTooLong: longer than `timeout` (s).
        """
        sample = measure(self.dump_command(log), answers=False, timeout=timeout)
        return replace(sample, messages=kept.messages)

    def dump_command(self, log: Path) -> list[str]:
        """The words that print the whole log."""
        files = ",".join(str(path) for path in sorted(log.glob("*.log")))
        return self._command([*TOOL, "--files", files])

    def _command(self, words: list[str]) -> list[str]:
        return [str(self.java), "-cp", self.class_path, *words]


def find(cache: Path | None = None) -> Kafka:
    """The peer, built first when it isn't there yet.

    Raises:
        apache.Missing: it can't be had here. StorageError: our program does not build.
    """
    java, version = apache.find_java()
    return Kafka(java, version, apache.class_path(SOURCES, "Kafka", cache))


def look() -> tuple[Kafka | None, str]:
    """The peer, and what the report says of it; None where it can't be had."""
    try:
        peer = find()
    except apache.Missing as missing:
        return None, f"not measured: {missing}"
    return peer, f"Apache Kafka {VERSION}, Java {peer.version}, the JVM's own defaults"
