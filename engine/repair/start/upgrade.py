"""`rstore doctor --upgrade-to`: what a release would not read, or read otherwise, of this store and broker.conf.

Both ways: upgrading and going back. What releases know is in tables (`upgrade_rules`, `rules`, and for keys of the
broker's file engine.broker_conf.release_keys); here each thing of the store is looked for, counted and placed, and the
start of that release is computed (`plan_start`). Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import NewerStore, NextStep
from engine.format import checkpoint, names
from engine.inspect import next_step
from engine.inspect.finding import Finding, Findings
from engine.inspect.finding_codes import Severity
from engine.inspect.store.release import Release, release_of
from engine.inspect.store.survey import survey
from engine.repair.start.apache_start import StartOutcome
from engine.repair.start.plan_start import StartPlan, plan_start
from engine.repair.start.rules import AbnormalStart, StartRules, rules_for, rules_of
from engine.repair.start.upgrade_conf import look_at_settings
from engine.repair.start.upgrade_log import look_at_log
from engine.repair.start.upgrade_parts import look_at_parts
from engine.repair.start.upgrade_rules import UPGRADE_CODES

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk

_STARTS = ("start-fails", "start-loses")


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The result. `to`: the release that is asked about; `by`: the one whose rules the store's own start follows; both
    as `rules` names them. `root`: None where only a broker's file was looked at. `next`: a command, where there is one.
    """

    to: str
    by: str | None
    findings: tuple[Finding, ...]
    root: str | None = None
    release: Release | None = None
    next: NextStep | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, refused or laid open."""
        return not any(one.severity is Severity.ERROR for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        """One document; findings as check's."""
        return {
            "ok": self.ok,
            "upgradeTo": self.to,
            "from": self.by,
            "findings": [one.to_json() for one in self.findings],
            "store": self.root,
            "release": None if self.release is None else self.release.to_json(),
            "next": None if self.next is None else self.next.to_json(),
        }


def plan_upgrade(
    disk: Disk,
    config: StoreConfig,
    version: str,
    *,
    conf: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Upgrade:
    """Look at the store, the log included.

    Args:
        disk: how files are reached.
        config: the store's settings.
        version: the release (`rules.rules_of`).
        conf: the broker's properties file; None: no settings are judged.
        progress: called with bytes read and to read, of the start, then of the log.

    Raises:
        InvalidArgument: no rules are known of that release. NotAStore. StorageError.
    """
    rules = rules_of(version)
    files = survey(disk, config)
    release = release_of(disk, files)
    own = rules_for(release)
    findings = Findings(UPGRADE_CODES)
    try:
        plan = plan_start(disk, config, conf=conf, version=rules.release, progress=progress, files=files)
    except NewerStore as error:
        findings.add("start-not-computed", "start", files.newer.parts[0].where, error.message)
    else:
        _look_at_start(plan, findings)
    look_at_log(disk, files, rules, findings, progress)
    look_at_parts(disk, files, rules.release, findings)
    _look_at_checkpoint(disk, files.root, rules, findings)
    if conf is not None:
        look_at_settings(disk, conf, rules.release, own.release, findings)
    result = findings.result()
    following = None
    if any(one.code in _STARTS for one in result):
        command = next_step.command_line(config, "plan-start", "--as", rules.release)
        following = NextStep(command, "shows what that start does")
    result = next_step.advised(config, result, following)
    return Upgrade(rules.release, own.release, result, files.root, release, following)


def judge_settings(disk: Disk, conf: str, version: str) -> Upgrade:
    """Look at a broker's properties file alone. Raises InvalidArgument, StorageError: it can't be read."""
    release = rules_of(version).release
    findings = Findings(UPGRADE_CODES)
    look_at_settings(disk, conf, release, None, findings)
    return Upgrade(release, None, findings.result())


def _look_at_start(plan: StartPlan, findings: Findings) -> None:
    apache = plan.apache
    if apache.outcome is not StartOutcome.OPENS:
        findings.add("start-fails", "start", plan.files.root, f"it {apache.outcome.value}: {apache.why}")
    if plan.loses:
        findings.add("start-loses", "start", names.COMMITLOG, ", ".join(plan.loses))


def _look_at_checkpoint(disk: Disk, root: str, rules: StartRules, findings: Findings) -> None:
    """Fields after the three times that the release does not keep up. Source: StoreCheckpoint#flush of each release."""
    path = os.path.join(root, names.CHECKPOINT)
    entry = disk.look(path)
    if entry is None or not entry.is_file:
        return
    data = disk.read_file(path, checkpoint.NEWER_SIZE)
    replica = checkpoint.decode_replica_offsets(data)
    fields = (
        {}
        if replica is None or rules.confirm_limits
        else {"masterFlushedOffset": replica.master_flushed_offset, "confirmPhyOffset": replica.confirm_phy_offset}
    )
    if rules.abnormal_start is not AbnormalStart.CHECKPOINT_OFFSET_JUDGED:
        fields["logicsPhysicalOffset"] = checkpoint.decode_queues_offset(data)
    for name, value in fields.items():
        if value:
            findings.add("checkpoint-fields", names.CHECKPOINT, names.CHECKPOINT, f"{name}={value}")
