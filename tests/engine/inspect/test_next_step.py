"""What comes next: a command that can be copied, one order for all who ask, no verdict of what was not read."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect import next_step
from engine.inspect.check.check import check
from engine.inspect.check.doctor import DOCTOR_CODES
from engine.inspect.finding import Findings
from engine.inspect.finding_codes import CODES, Fix, Severity
from engine.inspect.status.status import STATUS_CODES
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.start.plan_start import plan_start
from tests.support import layouts

CONFIG = StoreConfig(store_path_root_dir=Path("/s"))
ALL = {**CODES, **DOCTOR_CODES, **STATUS_CODES}


def following(*codes: str, everything: bool = True, live: bool = False) -> str | None:
    found = Findings(ALL)
    for code in codes:
        found.add(code, "place", "place")
    step = next_step.of_findings(CONFIG, found.result(), everything=everything, live=live)
    return None if step is None else step.command or step.why


def test_a_command_can_be_copied_to_a_shell() -> None:
    config = dataclasses.replace(CONFIG, typed=("--store", "/a b/it's", "-c", "x.conf"))
    line = next_step.command_line(config, "recover", "--bridge")
    assert shlex.split(line) == ["rstore", "--store", "/a b/it's", "-c", "x.conf", "recover", "--bridge"]


@pytest.mark.parametrize(
    ("codes", "command"),
    [
        ((), None),
        (("file-ignored", "log-accepted", "topic-unused"), None),
        (("not-closed",), "rstore recover"),
        (("not-closed", "unit-missing"), "rstore recover"),
        (("unit-missing", "index-missing"), "rstore recover --whole"),
        (("unit-missing", "log-damage", "not-closed"), "rstore recover --bridge"),
        (("undo-unfinished", "log-damage"), "rstore undo"),
        (("log-gap", "path-missing"), f"place: {CODES['path-missing'].hint}"),
        (("log-gap", "path-unnamed"), f"place: {CODES['path-unnamed'].hint}"),
        (("config-bad", "not-closed"), "rstore recover"),
        (("config-bad", "consumer-above"), "rstore rebuild-config"),
        (("log-gap", "file-absent"), "place: mount the disk that the link leads to before a broker starts"),
    ],
)
def test_the_order(codes: tuple[str, ...], command: str | None) -> None:
    assert following(*codes) == command


def test_what_was_not_read_is_never_the_end() -> None:
    assert following(everything=False) == "rstore check"
    assert following("disk-full", "consumer-above", everything=False) == "rstore check"
    assert following("not-closed", everything=False) == "rstore recover"


def test_a_store_that_a_process_has_is_not_repaired() -> None:
    told = following("log-damage", live=True)
    assert told is not None
    assert told.startswith("stop the process that has the store open, then run rstore recover --bridge")


@pytest.mark.parametrize("name", ALL)
def test_every_code_leads_somewhere(name: str) -> None:
    """A command, or words that say what to bring or decide; notes lead nowhere."""
    code = ALL[name]
    told = following(name)
    if code.severity is Severity.INFO:
        assert told is None
    else:
        assert code.fix is not Fix.NOTHING
        assert told
        assert told != "place: "


def test_check_and_plan_start_name_one_command_for_a_queue_with_a_gap(tmp_path: Path) -> None:
    """A queue's file lies behind another queue's: what check finds first, plan-start says, too."""
    made = layouts.make(tmp_path / "store")
    queues = made.root / "consumequeue" / "T"
    max((queues / "0").iterdir()).rename(queues / "1" / f"{4000:020d}")
    disk = Disk()
    said = check(disk, made.config).next
    assert said is not None
    assert plan_start(disk, made.config).next == said
    apply(disk, plan_recover(disk, made.config))
