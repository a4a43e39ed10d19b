"""Why doesn't it start: what a broker would stumble over, and what code 14 (SERVICE_NOT_AVAILABLE) would mean here.

Looks at names, lengths, rights, disks and settings, never at the messages themselves (that is check's). Every finding
of severity error keeps a broker from starting, or from starting with its data.

Source: MappedFileQueue#doLoad, DefaultMessageStore#checkStoreStatus, #isOSPageCacheBusy, RunningFlags, ConfigManager.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import field
from typing import TYPE_CHECKING, Any

from engine.broker_conf.delete_when import read_delete_when
from engine.broker_conf.disk_levels import max_used
from engine.config import STORE_CONF, STORE_SIZES, BrokerRole, apache_key
from engine.dataclass import dataclass
from engine.errors import CannotRepair, NextStep, NotAStore, StorageError
from engine.files.entry import FileKind
from engine.files.listing import Oddness, is_lost_found
from engine.files.lock import holder_of
from engine.format import names
from engine.inspect import next_step
from engine.inspect.check.config import read_config
from engine.inspect.check.doctor_conf import CONF_CODES, look_at_conf, unread_keys
from engine.inspect.check.files import as_planned, file_findings, gap_findings, path_findings, space_findings
from engine.inspect.check.served import check_served
from engine.inspect.finding import Finding, Findings
from engine.inspect.finding_codes import CODES, CONFIG_CODES, FILE_CODES, Code, Fix, Severity
from engine.inspect.store.layout import layout_of
from engine.inspect.store.release import Release, release_of
from engine.inspect.store.repairs import repairs
from engine.inspect.store.settled import settled
from engine.inspect.store.survey import StoreFiles, survey

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from engine.broker_conf.report import Report
    from engine.config import StoreConfig
    from engine.files.disk import Disk

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

DOCTOR_CODES: dict[str, Code] = {
    "store-missing": Code(_ERROR, "no store here", "name one with --store, or make one with: rstore init", Fix.BRING),
    "store-kind": Code(_ERROR, "rstore does not read this kind of store", "use the broker that wrote it", Fix.BRING),
    "file-twice": Code(
        _ERROR,
        "a second file for the same segment of the log",
        "the file that holds all records of the other one is kept",
        Fix.RECOVER,
    ),
    "mount-top": Code(
        _ERROR,
        "a directory of the commit log is the top of a mounted disk and contains lost+found: a broker does not start",
        "set storePathCommitLog to a directory below the top of that disk; rstore ignores lost+found",
    ),
    "size-setting": Code(
        _ERROR,
        "a size in the broker's settings does not match the files",
        "change the setting, never the files",
        Fix.BRING,
    ),
    "size-needed": Code(_INFO, "the store uses a size other than Apache's default", "set it in broker.conf"),
    "own-keys": Code(
        _WARNING,
        "rstore.conf in the store contains other keys than sizes: they have no effect",
        "give them in a broker's file, with -c, and remove them there",
    ),
    "permission": Code(
        _ERROR,
        "this user has no permission to read or write",
        "check owner and mode, or run as the broker's user",
        Fix.BRING,
    ),
    "read-only": Code(
        _ERROR, "the file system is mounted read-only", "remount it; the reason is in the system's log", Fix.BRING
    ),
    "disk-full": Code(
        _WARNING,
        "disk usage is above diskSpaceWarningLevelRatio: a broker refuses every put",
        "free space; rstore status shows disk usage",
    ),
    "disk-forced": Code(
        _WARNING,
        "disk usage is so high that a broker deletes segments before their retention ends",
        "free space before a broker starts",
    ),
    "disk-stuck": Code(
        _WARNING,
        "disk usage is so high that a broker should delete segments, but its deleteWhen prevents it",
        "deleteWhen takes hours only, such as deleteWhen=04 or deleteWhen=04;16",
    ),
    "config-none": Code(
        _INFO,
        "there is no configuration: a broker started here serves none of these topics",
        "before a broker starts: rstore rebuild-config",
        Fix.NOTHING,
    ),
    "running": Code(_INFO, "a running process has the store locked: a second one will not start", "nothing to do"),
    "slave": Code(_INFO, "brokerRole is SLAVE: a slave refuses puts", "send messages to the master"),
    "ha-open": Code(
        _WARNING,
        "whoever reaches the replication port of the running daemon gets the log, though an ACL or TLS is on",
        "set haAllow to the slaves' addresses, or --ha-tls with --tls-client-auth require",
    ),
    "java-missing": Code(_INFO, "Java was not found on this machine", "a broker needs Java; rstore does not"),
    "spark-missing": Code(_INFO, "Spark (pyspark) is not installed", "pip install 'rstore[spark]' for Spark jobs"),
    **CONF_CODES,
    **{
        name: CODES[name]
        for name in (
            *FILE_CODES,
            *("log-misplaced", "log-surplus", "log-missing", "path-missing", "path-unnamed", "log-gap", "log-accepted"),
            "checkpoint-missing",
            *CONFIG_CODES,
        )
    },
}
"""Every code that doctor reports; those that check has, too, mean the same."""

_CODE_14 = {
    "disk-full": "disk usage is above diskSpaceWarningLevelRatio",
    "read-only": "the file system is read-only",
    "permission": "files can't be written",
    "slave": "this broker is a slave",
}


@dataclass(frozen=True, slots=True)
class DoctorResult:
    """The result. `starts`: nothing keeps a broker from starting. `code_14`: why puts would be refused.

    `next`: what to do next; it names a command that reads the log where nothing is wrong, as doctor reads none.
    `configuration`: what a broker makes of its properties file, where there is one. `release`: of RocketMQ 5.
    """

    starts: bool
    findings: tuple[Finding, ...]
    root: str
    sizes: dict[str, int] = field(default_factory=dict)
    disk_used: float = -1.0
    code_14: tuple[str, ...] = ()
    java: str | None = None
    spark: bool = False
    next: NextStep | None = None
    configuration: Report | None = None
    release: Release | None = None

    @property
    def newer(self) -> bool:
        """Whether the store is one of RocketMQ 5, and no broker of 4.9 is to be started on it."""
        return any(one.code in (next_step.NEWER, next_step.REPAIRED) for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        """One document; findings as check's."""
        return {
            "ok": self.starts,
            "findings": [f.to_json() for f in self.findings],
            "store": self.root,
            "release": None if self.release is None else self.release.to_json(),
            "sizes": self.sizes,
            "diskUsedRatio": self.disk_used,
            "serviceNotAvailable": list(self.code_14),
            "java": self.java,
            "spark": self.spark,
            "next": None if self.next is None else self.next.to_json(),
            "configuration": None if self.configuration is None else self.configuration.to_json(),
        }


def doctor(
    disk: Disk, config: StoreConfig, conf: str | None = None, replication: Mapping[str, Any] | None = None
) -> DoctorResult:
    """Look at the store that `config` names. Whatever is wrong with it is a finding, never an error.

    Args:
        disk: the system's files.
        config: settings of the store.
        conf: path of the broker's properties file; None without one.
        replication: what the store's daemon, if one runs, says of its replication (`status --json`).

    Raises:
        StorageError: that file can't be read.
    """
    root = os.fspath(config.store_path_root_dir)
    collected = Findings(DOCTOR_CODES)
    report = None if conf is None else look_at_conf(disk, conf, collected)
    java, spark = _java(disk), importlib.util.find_spec("pyspark") is not None
    if java is None:
        collected.add("java-missing", "java", "PATH, JAVA_HOME")
    if not spark:
        collected.add("spark-missing", "spark", "this Python")
    if config.not_sizes:
        collected.add("own-keys", "settings", os.path.join(root, STORE_CONF), ", ".join(config.not_sizes[:6]))
    files = _survey(disk, config, root, collected)
    sizes: dict[str, int] = {}
    used = -1.0
    if files is not None:
        _look(disk, config, files, collected, frozenset() if report is None else unread_keys(report))
        sizes = {apache_key(name): int(getattr(files.config, name)) for name in STORE_SIZES}
    if disk.is_dir(root):
        _rights(disk, config, root, collected)
        used = max(disk.disk_used_ratio(path) for path in (root, *config.log_directories))
        _room(config, root, used, collected)
    if replication is not None and replication.get("openToAll"):
        collected.add("ha-open", "replication", str(replication.get("address")), str(replication["openToAll"]))
    findings = collected.result()
    live = any(f.code == "running" for f in findings)
    following = next_step.of_findings(config, findings, everything=False, live=live)
    findings = next_step.advised(config, findings, following)
    present = {f.code for f in findings}
    reasons = [why for code, why in _CODE_14.items() if code in present]
    starts = not any(f.severity is Severity.ERROR for f in findings)
    release = None if files is None else release_of(disk, files)
    return DoctorResult(starts, findings, root, sizes, used, tuple(reasons), java, spark, following, report, release)


def _survey(disk: Disk, config: StoreConfig, root: str, findings: Findings) -> StoreFiles | None:
    try:
        path_findings(disk, config, findings)
        return survey(disk, settled(disk, config))
    except NotAStore as error:
        findings.add("store-missing" if "no store" in error.message else "store-kind", root, root, error.message)
    except CannotRepair as error:
        findings.add("file-size", error.path or root, error.path or root, error.message)
    except StorageError as error:
        findings.add("permission", error.path or root, error.path or root, error.message)
    return None


def _look(disk: Disk, given: StoreConfig, files: StoreFiles, findings: Findings, unread: Container[str]) -> None:
    """Files, sizes and configuration. `unread`: keys whose value a broker can't read, and has its default for."""
    live = holder_of(disk, files.root) is not None
    if live:
        findings.add("running", names.LOCK, names.LOCK)
    layout = None if live else layout_of(disk, files)
    twice = [odd for odd in files.odd if odd.why == Oddness.DUPLICATE.value]
    for odd in twice:
        unplaced = layout is not None and odd.path in layout.unplaced
        findings.add("file-twice", odd.path, odd.path, fix=Fix.BRIDGE if unplaced else None)
    tops = [odd for odd in files.odd if odd.is_lost_found]
    for odd in tops:
        findings.add("mount-top", odd.path, odd.path)
    done = repairs(disk, files.root)
    reported = frozenset(odd.path for odd in (*twice, *tops))
    file_findings(disk, files, findings, live=live, done=done, leave_out=reported, layout=layout)
    planned = as_planned(files, layout)
    gap_findings(disk, planned, findings, done)
    space_findings(disk, files, findings)
    believed = layout is not None and layout.always is None
    _sizes(disk, given, files, findings, {"mapped_file_size_commit_log"} if believed else set(), unread)
    config = read_config(disk, files.config, files.root, findings)
    check_served(disk, planned, config, findings, live=live, bare=True)


def _sizes(
    disk: Disk,
    given: StoreConfig,
    files: StoreFiles,
    findings: Findings,
    believed: Container[str],
    unread: Container[str],
) -> None:
    """Settings that somebody gave, against what the files say; and sizes that a broker.conf must give.

    `believed`: settings that are right, as it is the files whose length is wrong. `unread`: as of `_look`.
    """
    defaults = type(given)()
    sizes = given.given & set(STORE_SIZES)
    inferred = survey(disk, settled(disk, given).as_given(given.given - sizes)).config if sizes else files.config
    fits = any(index.whole for index in files.index)  # a layout is inferred from a length: others have it, too
    for name in STORE_SIZES:
        if fits and name in given.given & {"max_hash_slot_num", "max_index_num"}:
            continue
        key, theirs = apache_key(name), getattr(inferred, name)
        if name in given.given:
            if name not in believed and theirs not in (getattr(given, name), getattr(defaults, name)):
                findings.add("size-setting", key, key, f"set to {getattr(given, name)}, the files have {theirs}")
        elif getattr(files.config, name) == getattr(defaults, name):
            continue
        elif key in unread:
            findings.add(
                "size-setting",
                key,
                key,
                f"the default, {getattr(defaults, name)}, is in force; the files have {theirs}",
            )
        else:
            findings.add("size-needed", key, key, f"{key}={getattr(files.config, name)}")


def _rights(disk: Disk, config: StoreConfig, root: str, findings: Findings) -> None:
    """Whether this user may read and write everything, down to the files."""
    try:
        for path in {root, *(p for p in config.log_directories if disk.is_dir(p))}:
            if disk.is_read_only(path):
                findings.add("read-only", path, path)
            for place in _below(disk, path):
                if not disk.may(place, write=True):
                    findings.add("permission", os.path.dirname(place), place, os.path.basename(place))
    except StorageError as error:
        findings.add("permission", error.path or root, error.path or root, error.message)


def _below(disk: Disk, path: str, depth: int = 4) -> Iterator[str]:
    yield path
    if depth and disk.may(path, write=False):
        for entry in disk.scandir(path):
            if entry.kind is FileKind.ABSENT or is_lost_found(entry):
                continue
            if entry.is_file or not disk.is_dir(entry.path):
                yield entry.path
            else:
                yield from _below(disk, entry.path, depth - 1)


def _room(config: StoreConfig, root: str, used: float, findings: Findings) -> None:
    percent = f"{used:.0%} used"
    full = config.disk_space_warning_level_ratio
    if used > full:
        findings.add("disk-full", root, root, f"{percent}, the limit is {100 * full:.4g}%")
    elif used > config.disk_space_clean_forcibly_ratio or used * 100 > max_used(config.disk_max_used_space_ratio):
        wrong = read_delete_when(config.delete_when)
        problem = None if wrong.stops_at is None else wrong.problem(config.delete_when)
        if problem is None:
            findings.add("disk-forced", root, root, percent)
        else:
            findings.add("disk-stuck", root, root, f"{percent}; {problem}")
    if config.broker_role is BrokerRole.SLAVE:
        findings.add("slave", "brokerRole", "brokerRole")


def _java(disk: Disk) -> str | None:
    """Where java is."""
    home = os.environ.get("JAVA_HOME")
    named = os.path.join(home, "bin", "java") if home else None
    return named if named and disk.exists(named) else shutil.which("java")
