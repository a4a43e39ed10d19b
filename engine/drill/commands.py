"""The commands that a drill runs: one registry, an entry a command, each plan + apply as `rstore` itself does them.

A command gets the disk that it shall work on, so that it can be killed, cut from power, or run out of space at any
operation. What it answers is what the command line would: an exit code, and the error's code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine.errors import InvalidArgument, RStoreError
from engine.format.quantities import counted

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.finding import Finding
    from engine.repair.config.consumer_offsets import OffsetPlan
    from engine.repair.expire.expire import ExpirePlan
    from engine.repair.recover.plan import RecoverPlan
    from engine.repair.reindex.reindex import ReindexPlan
    from engine.repair.salvage.undo import UndoPlan
    from engine.repair.truncate.truncate import TruncatePlan

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command ended.

    Attributes:
        exit: the exit code.
        error: the error's code, None when there was none.
        said: one line.
        changed: whether it had anything to change.
        findings: codes of what it found.
        log_begin, log_end: physical offsets where it left the log's first byte, and its end; None where that is not its
            business.
    """

    exit: int = 0
    error: str | None = None
    said: str = ""
    changed: bool = False
    findings: tuple[str, ...] = ()
    log_begin: int | None = None
    log_end: int | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `options`: what a script may give, and of which type. `reads`: it writes nothing."""

    run: Callable[[Disk, StoreConfig, Options], CommandOutcome]
    options: Mapping[str, type] = field(default_factory=dict)
    reads: bool = False


def execute(name: str, disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
    """Run a command of the registry; an error of the engine is an outcome, as on the command line."""
    try:
        return COMMANDS[name].run(disk, config, options)
    except RStoreError as error:
        return CommandOutcome(error.exit_code, error.code, str(error))


# --- what changes a store ---------------------------------------------------------------------------------------------


def _init(disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
    from engine.repair.create import create_store

    del options
    create_store(disk, config)
    return CommandOutcome(said="an empty store", changed=True)


Plan = TypeVar("Plan")


@dataclass(frozen=True, slots=True)
class _Change(Generic[Plan]):
    """A command that changes a store: lock, plan, apply. The flow is that of `rstore_cli.change`, with `--yes`.

    `changes`: whether applying the plan changes a byte. `apply` says what was done. `discard` gives back what a plan
    holds. `unchanged`: what is done where nothing is to be changed.
    """

    plan: Callable[[Disk, StoreConfig, Options], Plan]
    refusal: Callable[[Plan], RStoreError | None]
    changes: Callable[[Plan], bool]
    apply: Callable[[Disk, Plan, Options], str]
    log_begin: Callable[[Plan], int | None] = lambda _: None
    log_end: Callable[[Plan], int | None] = lambda _: None
    discard: Callable[[Disk, Plan], None] = lambda disk, plan: None
    unchanged: Callable[[Disk, StoreConfig], None] = lambda disk, config: None

    def __call__(self, disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
        """Run it. Raises RStoreError."""
        from engine.files.lock import StoreLock
        from engine.inspect.store.survey import survey

        files = survey(disk, config)
        with StoreLock(disk, files.root):
            plan = self.plan(disk, config, options)
            try:
                refusal = self.refusal(plan)
                if refusal is not None:
                    raise refusal
                if not self.changes(plan):
                    self.unchanged(disk, files.config)
                    return CommandOutcome(
                        0, None, "nothing to do", log_begin=self.log_begin(plan), log_end=self.log_end(plan)
                    )
                said = self.apply(disk, plan, options)
                return CommandOutcome(
                    0, None, said, changed=True, log_begin=self.log_begin(plan), log_end=self.log_end(plan)
                )
            finally:
                self.discard(disk, plan)


def _plan_recover(disk: Disk, config: StoreConfig, options: Options) -> RecoverPlan:
    from engine.repair.recover.log_end import Mode
    from engine.repair.recover.recover import plan_recover

    if options.get("normal") and options.get("abnormal"):
        raise InvalidArgument("normal and abnormal exclude each other")
    mode = Mode.NORMAL if options.get("normal") else Mode.ABNORMAL if options.get("abnormal") else None
    cut, bridge, whole = (bool(options.get(name)) for name in ("cut", "bridge", "whole"))
    return plan_recover(disk, config, mode=mode, cut=cut, bridge=bridge, whole=whole, locked=True)


def _would_change(plan: RecoverPlan) -> bool:
    """Also when it only takes the abort file away, or writes the checkpoint."""
    return plan.changed or plan.marks


def _apply_recover(disk: Disk, plan: RecoverPlan, options: Options, command: str = "recover") -> str:
    from engine.repair.recover.apply import apply

    apply(disk, plan, command=command, keep=not options.get("no_salvage"))
    parts = {
        "bytes cut": plan.log.bytes_cut,
        "places bridged": len(plan.log.bridges),
        "units rebuilt": sum(queue.units_rebuilt for queue in plan.queues),
        "keys put": plan.index.keys_put,
    }
    return ", ".join(f"{count} {what}" for what, count in parts.items() if count) or "marks and names only"


def _unchanged_recover(disk: Disk, config: StoreConfig) -> None:
    from engine.repair.recover.memory import forget

    forget(disk, os.fspath(config.store_path_root_dir))


def _plan_truncate(disk: Disk, config: StoreConfig, options: Options) -> TruncatePlan:
    from engine.repair.truncate import truncate

    given = [name for name in ("to_record", "to_offset", "to_time") if name in options]
    if len(given) != 1:
        raise InvalidArgument("truncate wants one of to_record, to_offset and to_time")
    offset = options.get("to_offset")
    if "to_record" in options:
        offset = _behind_record(disk, config, int(options["to_record"]))
    whole = bool(options.get("whole"))
    return truncate.plan(disk, config, to_offset=offset, to_time=options.get("to_time"), whole=whole)


def _behind_record(disk: Disk, config: StoreConfig, count: int) -> int:
    """Physical offset behind the log's first `count` records. Raises InvalidArgument when it has fewer."""
    from engine.inspect.store.survey import survey
    from engine.log.scan import RecordBatch, Scanner
    from engine.log.source import ClosedLog

    files = survey(disk, config)
    left = count
    with ClosedLog(disk, files.log) as log:
        scanner = Scanner(log, max_message_size=files.config.max_message_size)
        for event in scanner.scan(files.log[0].offset) if files.log else ():
            if isinstance(event, RecordBatch):
                if left <= len(event):
                    return event.offset(left - 1) + event.rows[left - 1].size
                left -= len(event)
    raise InvalidArgument(f"the log has only {counted(count - left, 'record')}", path=files.root)


def _apply_truncate(disk: Disk, plan: TruncatePlan, options: Options) -> str:
    return _apply_recover(disk, plan.repair, options, "truncate")


def _plan_reindex(disk: Disk, config: StoreConfig, options: Options) -> ReindexPlan:
    from engine.inspect.store.survey import survey
    from engine.repair.reindex import swap as reindex_swap
    from engine.repair.reindex.reindex import Scope, build

    queues, index = bool(options.get("consumequeue")), bool(options.get("index"))
    topic, both = options.get("topic"), not queues and not index
    scope = Scope(queues or both, index or (both and topic is None), topic, options.get("from"))
    files = survey(disk, config)
    root = files.root
    refused = reindex_swap.refusal(disk, files)
    if refused is not None:
        raise refused
    reindex_swap.clear(disk, root)
    into = reindex_swap.build_directory(root)
    disk.mkdirs(into)
    try:
        return build(disk, config, into, scope)
    except Exception:
        reindex_swap.clear(disk, root)
        raise


def _apply_reindex(disk: Disk, plan: ReindexPlan, options: Options) -> str:
    from engine.repair.reindex.swap import swap

    del options
    swap(disk, plan)
    return counted(len(plan.queues_changed), "queue") + (" and the index" if plan.index_changed else "") + " swapped in"


def _discard_reindex(disk: Disk, plan: ReindexPlan) -> None:
    from engine.repair.reindex.swap import clear

    clear(disk, os.path.dirname(plan.built))


def _unchanged_reindex(disk: Disk, config: StoreConfig) -> None:
    from engine.repair.reindex.swap import unchanged

    unchanged(disk, config)


def _plan_expire(disk: Disk, config: StoreConfig, options: Options) -> ExpirePlan:
    from engine.repair.expire.expire import ExpireRules, plan_expire

    hours = options.get("reserved_hours")
    rules = ExpireRules(bool(options.get("force")), None if hours is None else float(hours), options.get("disk_ratio"))
    return plan_expire(disk, config, rules)


def _apply_expire(disk: Disk, plan: ExpirePlan, options: Options) -> str:
    from engine.repair.expire.expire import apply_expire

    del options
    apply_expire(disk, plan)
    return f"{counted(len(plan.removed), 'file')} gone, the log begins at {plan.log_min}"


def _plan_undo(disk: Disk, config: StoreConfig, options: Options) -> UndoPlan:
    from engine.repair.salvage.undo import plan_undo

    del options
    return plan_undo(disk, config)


def _apply_undo(disk: Disk, plan: UndoPlan, options: Options) -> str:
    from engine.repair.salvage.undo import undo

    del options
    undo(disk, plan)
    return f"{counted(len(plan.repairs), 'repair')} taken back, {plan.bytes_restored} bytes restored"


def _plan_offset(disk: Disk, config: StoreConfig, options: Options) -> OffsetPlan:
    from engine.log.derive import TopicQueue
    from engine.repair.config.consumer_offsets import plan_offset

    missing = [name for name in ("group", "topic", "queue", "to") if name not in options]
    if missing:
        raise InvalidArgument(f"offsets set wants {missing[0]}")
    return plan_offset(disk, config, options["group"], TopicQueue(options["topic"], options["queue"]), options["to"])


def _apply_offset(disk: Disk, plan: OffsetPlan, options: Options) -> str:
    from engine.repair.config.consumer_offsets import set_offset

    set_offset(disk, plan)
    return f"{options['group']} reads {options['to']} next"


def _unchanged_offset(disk: Disk, config: StoreConfig) -> None:
    from engine.repair.salvage.finish import settle

    settle(disk, config)


# --- what only looks --------------------------------------------------------------------------------------------------


def _check(disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
    from engine.inspect.check.check import check
    from engine.repair.recover.following import mended_by_recovery

    del options
    found = check(disk, config, mended=mended_by_recovery(disk))
    return _found(found.findings, ok=found.ok)


def _doctor(disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
    from engine.inspect.check.doctor import doctor

    del options
    found = doctor(disk, config)
    return _found(found.findings, ok=found.starts)


def _plan_start(disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
    from engine.repair.start.plan_start import plan_start

    del options
    plan = plan_start(disk, config)
    if plan.refusal is not None:
        raise plan.refusal
    return CommandOutcome(said="a broker would lose nothing")


def _verify_crc(disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
    from engine.inspect.check.verify import verify

    del options
    found = verify(disk, config)
    said = f"{counted(found.records, 'record')}, {len(found.bad)} bad"
    return CommandOutcome(1 if found.bad else 0, None, said)


def _found(findings: tuple[Finding, ...], *, ok: bool) -> CommandOutcome:
    codes = tuple(dict.fromkeys(finding.code for finding in findings))
    return CommandOutcome(0 if ok else 1, None, ", ".join(codes) or "no findings", findings=codes)


COMMANDS: Mapping[str, Command] = {
    "init": Command(_init),
    "recover": Command(
        _Change(
            _plan_recover,
            lambda plan: plan.refusal,
            _would_change,
            _apply_recover,
            log_end=lambda plan: plan.log.end.end,
            unchanged=_unchanged_recover,
        ),
        {"normal": bool, "abnormal": bool, "bridge": bool, "cut": bool, "whole": bool, "no_salvage": bool},
    ),
    "truncate": Command(
        _Change(
            _plan_truncate,
            lambda plan: plan.refusal(agreed=True),
            lambda plan: _would_change(plan.repair),
            _apply_truncate,
            log_end=lambda plan: plan.repair.log.end.end,
        ),
        {"to_record": int, "to_offset": int, "to_time": int, "whole": bool, "no_salvage": bool},
    ),
    "reindex": Command(
        _Change(
            _plan_reindex,
            lambda _: None,
            lambda plan: plan.changed,
            _apply_reindex,
            discard=_discard_reindex,
            unchanged=_unchanged_reindex,
        ),
        {"consumequeue": bool, "index": bool, "topic": str, "from": int},
    ),
    "expire": Command(
        _Change(
            _plan_expire,
            lambda plan: plan.refusal,
            lambda plan: plan.changed,
            _apply_expire,
            log_begin=lambda plan: plan.log_min,
        ),
        {"force": bool, "reserved_hours": float, "disk_ratio": int},
    ),
    "offsets set": Command(
        _Change(_plan_offset, lambda _: None, lambda plan: plan.changed, _apply_offset, unchanged=_unchanged_offset),
        {"group": str, "topic": str, "queue": int, "to": int},
    ),
    "undo": Command(_Change(_plan_undo, lambda _: None, lambda _: True, _apply_undo)),
    "check": Command(_check, reads=True),
    "doctor": Command(_doctor, reads=True),
    "plan-start": Command(_plan_start, reads=True),
    "verify-crc": Command(_verify_crc, reads=True),
}
"""Every command that a drill can run, by its name on the command line; options with `_` for `-`.

`to_record` is a drill's own: the log ends behind its first so many records.
"""
