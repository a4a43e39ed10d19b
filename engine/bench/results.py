"""What a run measured: samples by job, workload, page cache and side; medians and ratios of them."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from engine.bench.backups import BackupResults
from engine.bench.clients import ClientResults
from engine.bench.jobs import BY_NAME, FLOORS, GROWN, LIMITS, Against, Floor
from engine.bench.measure import Measurement
from engine.bench.replicated import ReplicationResults
from engine.bench.served import ServedResults
from engine.bench.spark import SparkMeasure
from engine.bench.workload import GIB, GROWTH, growth_name
from engine.dataclass import dataclass

MIB = 1 << 20


class Side(enum.Enum):
    """Who did it."""

    OURS = "ours"
    COMMAND = "rstore command"
    APACHE = "apache"
    KAFKA = "kafka-dump-log"


class Cache(enum.Enum):
    """The page cache before each measure."""

    WARM = "warm"
    COLD = "cold"


@dataclass(frozen=True, slots=True)
class JobPlace:
    """What is compared: a job on a workload."""

    job: str
    workload: str
    cache: Cache = Cache.WARM


def place_of(floor: Floor) -> JobPlace:
    """What it is asked of."""
    return JobPlace(floor.job, floor.workload, Cache.COLD if floor.cold else Cache.WARM)


@dataclass(frozen=True, slots=True)
class FloorVerdict:
    """A floor and what was measured (None: it wasn't)."""

    floor: Floor
    measured: float | None

    @property
    def met(self) -> bool | None:
        """None when it can't be determined."""
        if self.measured is None:
            return None
        return self.measured <= self.floor.value if self.floor.is_ceiling else self.measured >= self.floor.value


@dataclass(slots=True)
class Results:
    """All of a run.

    Attributes:
        samples: by place and side, in the order of the rounds.
        facts: of the machine, by name.
        settings: of the run, by name.
        apache: the peer's versions, or why there is none.
        failures: measures that could not be made, and why.
        ended: measures of a peer that came to the time limit.
        profiles: text of a profile, by job and workload, of each floor that was missed.
        spark: the pipeline's jobs on Spark and by the engine alone; `spark_starts`: seconds until Spark was there, by
            cores.
        served: the daemon under load. clients: our client beside Java's.
        replicated: copies of logs, and sends to masters with slaves.
        backups: backups and restores.
    """

    samples: dict[tuple[JobPlace, Side], list[Measurement]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    apache: str = ""
    failures: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    profiles: dict[tuple[str, str], str] = field(default_factory=dict)
    spark: list[SparkMeasure] = field(default_factory=list)
    spark_starts: dict[int, float] = field(default_factory=dict)
    served: ServedResults = field(default_factory=ServedResults)
    clients: ClientResults = field(default_factory=ClientResults)
    replicated: ReplicationResults = field(default_factory=ReplicationResults)
    backups: BackupResults = field(default_factory=BackupResults)

    def add(self, place: JobPlace, side: Side, sample: Measurement) -> None:
        """One more."""
        self.samples.setdefault((place, side), []).append(sample)

    def places(self) -> list[JobPlace]:
        """In the order in which they were measured."""
        return list(dict.fromkeys(place for place, _ in self.samples))

    def median(self, place: JobPlace, side: Side, of: Callable[[Measurement], float | None]) -> float | None:
        """The median of a value over the rounds; None where there is none."""
        values = [value for sample in self.samples.get((place, side), []) if (value := of(sample)) is not None]
        return statistics.median(values) if values else None

    def seconds(self, place: JobPlace, side: Side) -> float | None:
        """Median of the seconds inside the job."""
        return self.median(place, side, lambda sample: sample.seconds)

    def per_message(self, place: JobPlace, side: Side) -> float | None:
        """Median of the seconds a message, inside the job."""
        return self.median(
            place, side, lambda s: None if s.seconds is None or not s.messages else s.seconds / s.messages
        )

    def wall(self, place: JobPlace, side: Side) -> float | None:
        """Median of the seconds of the whole process."""
        return self.median(place, side, lambda sample: sample.wall)

    def inside_ratio(self, place: JobPlace, peer: str | None = None) -> float | None:
        """How many times as fast as Apache, start not counted; by message when the peer is another job."""
        other = JobPlace(peer or place.job, place.workload, place.cache)
        ours, theirs = self.per_message(place, Side.OURS), self.per_message(other, Side.APACHE)
        return None if ours is None or theirs is None else theirs / ours

    def whole_ratio(self, place: JobPlace, peer: Side = Side.APACHE) -> float | None:
        """How many times as fast as the peer, process against process."""
        ours, theirs = self.wall(place, Side.COMMAND), self.wall(place, peer)
        return None if ours is None or theirs is None else theirs / ours

    def command_ratio(self, place: JobPlace, other: str) -> float | None:
        """How many times the seconds of another command of ours a command takes on the same store."""
        ours = self.wall(place, Side.COMMAND)
        theirs = self.wall(JobPlace(other, place.workload, place.cache), Side.COMMAND)
        return None if not ours or not theirs else ours / theirs

    def message_ratio(self, place: JobPlace, workload: str) -> float | None:
        """How many times the seconds a message, whole process, that the job takes on another workload."""
        ours, other = (
            self.median(one, Side.COMMAND, lambda sample: sample.wall / sample.messages if sample.messages else None)
            for one in (place, JobPlace(place.job, workload, place.cache))
        )
        return None if not ours or not other else ours / other

    def memory(self, place: JobPlace, side: Side) -> tuple[float, float] | None:
        """Peak of resident memory with and without mapped files (bytes), median of the rounds."""
        all_of_it = self.median(place, side, lambda sample: sample.peak_rss)
        own = self.median(place, side, lambda sample: sample.peak_anon)
        return None if all_of_it is None or own is None else (all_of_it, own)

    def crc_limit(self, workload: str) -> tuple[str, float] | None:
        """The fastest CRC library over the workload's log and its median seconds."""
        samples = self.samples.get((JobPlace(LIMITS, workload), Side.OURS), [])
        names = {name for sample in samples for name in sample.more if name != "read"}
        medians = {name: statistics.median(sample.more[name] for sample in samples) for name in names}
        return min(medians.items(), key=lambda item: item[1]) if medians else None

    def crc_share(self, place: JobPlace) -> float | None:
        """The share of that limit that a job reaches."""
        limit, ours = self.crc_limit(place.workload), self.seconds(place, Side.OURS)
        return None if limit is None or ours is None else limit[1] / ours

    def growth(self) -> list[tuple[str, int, int, float, float]]:
        """Job, files of the log, messages, seconds a message and seconds a GiB of records, for each growing log."""
        rows = []
        for job in GROWN:
            for factor in GROWTH:
                place = JobPlace(job, growth_name(factor))
                seconds = self.seconds(place, Side.OURS)
                size = self.median(place, Side.OURS, lambda sample: sample.size)
                messages = self.median(place, Side.OURS, lambda sample: sample.messages)
                if seconds is not None and size and messages:
                    rows.append((job, factor, int(messages), seconds / messages, seconds / size * GIB))
        return rows

    def verdicts(self) -> list[FloorVerdict]:
        """Every floor of a job that was measured, with what was found."""
        measured = set(self.places())
        return [FloorVerdict(f, self._found(f)) for f in FLOORS if place_of(f) in measured and f.job in BY_NAME]

    def _found(self, floor: Floor) -> float | None:
        place = place_of(floor)
        if floor.against is Against.INSIDE:
            return self.inside_ratio(place, floor.peer)
        if floor.against is Against.WHOLE:
            return self.whole_ratio(place)
        if floor.against is Against.KAFKA:
            return self.whole_ratio(place, Side.KAFKA)
        if floor.against is Against.CRC:
            return self.crc_share(place)
        if floor.against is Against.SECONDS:
            return self.wall(place, Side.COMMAND)
        if floor.against is Against.PLAIN:
            return self.message_ratio(place, floor.peer or floor.workload)
        if floor.against is Against.OTHER:
            return self.command_ratio(place, floor.peer or floor.job)
        memory = self.memory(place, Side.COMMAND)
        return None if memory is None else memory[1] / MIB

    def to_json(self) -> dict[str, Any]:
        """The whole with all samples: report.json."""
        return {
            "machine": dict(self.facts),
            "settings": self.settings,
            "apache": self.apache,
            "measures": [
                {
                    "job": place.job,
                    "workload": place.workload,
                    "cache": place.cache.value,
                    "side": side.value,
                    "samples": [sample.to_json() for sample in samples],
                }
                for (place, side), samples in self.samples.items()
            ],
            "floors": [
                {
                    "job": verdict.floor.job,
                    "workload": verdict.floor.workload,
                    "against": verdict.floor.against.value,
                    "peer": verdict.floor.peer or verdict.floor.job,
                    "cache": place_of(verdict.floor).cache.value,
                    "wanted": verdict.floor.value,
                    "measured": verdict.measured,
                    "met": verdict.met,
                }
                for verdict in self.verdicts()
            ],
            "growth": [
                {"job": job, "files": files, "messages": n, "secondsPerMessage": one, "secondsPerGiB": gib}
                for job, files, n, one, gib in self.growth()
            ],
            "spark": [measure.to_json() for measure in self.spark],
            "sparkStartSeconds": {str(cores): seconds for cores, seconds in self.spark_starts.items()},
            "serve": self.served.to_json(),
            "client": self.clients.to_json(),
            "replication": self.replicated.to_json(),
            "backup": self.backups.to_json(),
            "failures": self.failures,
            "ended": self.ended,
        }
