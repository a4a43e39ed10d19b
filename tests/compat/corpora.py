"""The damaged stores of both corpora: the golden one, where it is at hand, and that of fixtures/."""

from __future__ import annotations

from pathlib import Path

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.repair.recover.apply import apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from tests.support import golden, mutate, stores
from tests.support.fixtures import archive

from . import checks, fixtures
from .apache import Line, Sizes

GOLDEN_SIZES = Sizes(
    golden.SMALL_SETTINGS["mapped_file_size_commit_log"],
    golden.SMALL_SETTINGS["mapped_file_size_consume_queue"],
    golden.SMALL_SETTINGS["max_hash_slot_num"],
    golden.SMALL_SETTINGS["max_index_num"],
)

CHUNK = 110


def every_case() -> list[Line]:
    """All cases of both."""
    return [*golden.cases(), *fixtures.cases()]


def chunks(cases: list[Line]) -> list[list[Line]]:
    """As many as may lie on the disk at the same time: up to 10 MB each."""
    return [cases[i : i + CHUNK] for i in range(0, len(cases), CHUNK)]


def is_golden(case: Line) -> bool:
    """Whether a case is one of the golden corpus, by its id."""
    return str(case["id"]).startswith("v")


def sizes(case: Line) -> Sizes:
    """The sizes of a case's files."""
    return GOLDEN_SIZES if is_golden(case) else fixtures.sizes(case["base"])


def config(store: Path, case: Line) -> StoreConfig:
    """Our settings for a case's store, those of the broker that wrote it."""
    return checks.settings(store, sizes(case), settings(case))


def settings(case: Line) -> Line:
    """Further settings of a case's store, by Apache's names."""
    found: Line = {} if is_golden(case) else fixtures.manifest(case["base"])["settings"]
    return found


class Bases:
    """The undamaged stores, each unpacked once below `root`, and damaged copies of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unpacked: dict[tuple[bool, str], Path] = {}

    def base(self, case: Line) -> Path:
        """The undamaged store of a case: to read only."""
        key = is_golden(case), case["base"]
        if key not in self._unpacked:
            into = self._root / f"{'golden' if key[0] else 'fixture'}-{key[1]}"
            into.mkdir(parents=True)
            self._unpacked[key] = stores.unpack(golden.archive(key[1]) if key[0] else archive(key[1]), into)
        return self._unpacked[key]

    def damaged(self, case: Line, to: Path) -> Path:
        """A fresh damaged copy at `to`, which must not be there yet."""
        store = stores.copy(self.base(case), to)
        mutate.apply(store, case["ops"])
        return store


def repair(config: StoreConfig) -> tuple[RecoverPlan, bool]:
    """Recovers a store as its operator does; with the plan, whether `--bridge` was given.

    It is given where there is damage in the middle: where `recover` refuses, or `--bridge` has anything to bridge, also
    before the recovery's start, where `recover` alone doesn't look.
    """
    disk = Disk()
    plan = plan_recover(disk, config)
    bridging = plan_recover(disk, config, bridge=True)
    bridge = plan.refusal is not None or bool(bridging.to_json()["bridged"])
    if bridge:
        plan = bridging
    apply(disk, plan)
    return plan, bridge
