"""The commands that a drill runs: one registry, an entry a command, each of the engine's own as `rstore` runs them.

A command gets the disk that it shall work on, so that it can be killed, cut from power, or run out of space at any
operation. What it answers is what the command line would: an exit code, and the error's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine.dataclass import dataclass
from engine.drill.outcome import CommandOutcome
from engine.errors import InvalidArgument, RStoreError
from engine.format.quantities import counted

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.finding import Finding
    from engine.repair.change import Change
    from engine.repair.config.consumer_offsets import OffsetPlan
    from engine.repair.expire.expire import ExpirePlan
    from engine.repair.recover.change import Recovery
    from engine.repair.recover.plan import RecoverPlan
    from engine.repair.reindex.reindex import ReindexPlan
    from engine.repair.salvage.undo import UndoPlan
    from engine.repair.truncate.truncate import TruncatePlan

Options = Mapping[str, Any]


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
    return CommandOutcome(summary="an empty store", changed=True)


Plan = TypeVar("Plan")


@dataclass(frozen=True, slots=True)
class _Rehearsed(Generic[Plan]):
    """A change that a drill makes, by the class that `rstore` makes it with: nobody is asked.

    `change`: what a script's options ask for. `summary`: what was done, in a line. `log_begin`, `log_end`: physical
    offsets where the plan leaves the log.
    """

    change: Callable[[Disk, StoreConfig, Options], Change[Plan]]
    summary: Callable[[Plan], str]
    log_begin: Callable[[Plan], int | None] = lambda _: None
    log_end: Callable[[Plan], int | None] = lambda _: None

    def __call__(self, disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
        """Run it. Raises RStoreError."""
        from engine.repair.change import carry_out

        outcome = carry_out(self.change(disk, config, options), disk, config)
        plan = outcome.plan
        return CommandOutcome(
            summary=self.summary(plan) if outcome.changes else "nothing to do",
            changed=outcome.changes,
            log_begin=self.log_begin(plan),
            log_end=self.log_end(plan),
        )


def _recover(disk: Disk, config: StoreConfig, options: Options) -> Change[Recovery]:
    from engine.repair.recover.change import RecoverChange
    from engine.repair.recover.log_end import Mode

    del disk, config
    if options.get("normal") and options.get("abnormal"):
        raise InvalidArgument("normal and abnormal exclude each other")
    mode = Mode.NORMAL if options.get("normal") else Mode.ABNORMAL if options.get("abnormal") else None
    cut, bridge, whole = (bool(options.get(name)) for name in ("cut", "bridge", "whole"))
    return RecoverChange(mode, cut, bridge, whole, keep=not options.get("no_salvage"))


def _repaired(plan: RecoverPlan) -> str:
    parts = {
        "bytes cut": plan.log.bytes_cut,
        "places bridged": len(plan.log.bridges),
        "units rebuilt": sum(queue.units_rebuilt for queue in plan.every_queue),
        "keys put": plan.index.keys_put,
    }
    return ", ".join(f"{count} {what}" for what, count in parts.items() if count) or "only marks and names"


def _truncate(disk: Disk, config: StoreConfig, options: Options) -> Change[TruncatePlan]:
    from engine.repair.truncate.change import TruncateChange

    given = [name for name in ("to_record", "to_offset", "to_time") if name in options]
    if len(given) != 1:
        raise InvalidArgument("truncate requires one of to_record, to_offset and to_time")
    offset = options.get("to_offset")
    if "to_record" in options:
        offset = _after_record(disk, config, int(options["to_record"]))
    return TruncateChange(
        offset,
        options.get("to_time"),
        whole=bool(options.get("whole")),
        agreed=True,
        keep=not options.get("no_salvage"),
    )


def _after_record(disk: Disk, config: StoreConfig, count: int) -> int:
    """Physical offset after the log's first `count` records. Raises InvalidArgument when it has fewer."""
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


def _reindex(disk: Disk, config: StoreConfig, options: Options) -> Change[ReindexPlan]:
    from engine.repair.reindex.change import ReindexChange
    from engine.repair.reindex.reindex import Scope

    del disk, config
    queues, index = bool(options.get("consumequeue")), bool(options.get("index"))
    topic, both = options.get("topic"), not queues and not index
    return ReindexChange(Scope(queues or both, index or (both and topic is None), topic, options.get("from")))


def _swapped(plan: ReindexPlan) -> str:
    return counted(len(plan.queues_changed), "queue") + (" and the index" if plan.index_changed else "") + " swapped in"


def _expire(disk: Disk, config: StoreConfig, options: Options) -> Change[ExpirePlan]:
    from engine.repair.expire.change import ExpireChange
    from engine.repair.expire.expire import ExpireRules

    del disk, config
    hours = options.get("reserved_hours")
    rules = ExpireRules(bool(options.get("force")), None if hours is None else float(hours), options.get("disk_ratio"))
    return ExpireChange(rules)


def _undo(disk: Disk, config: StoreConfig, options: Options) -> Change[UndoPlan]:
    from engine.repair.salvage.change import UndoChange

    del disk, config, options
    return UndoChange()


def _set_offset(disk: Disk, config: StoreConfig, options: Options) -> Change[OffsetPlan]:
    from engine.log.derive import TopicQueue
    from engine.repair.config.change import OffsetChange

    del disk, config
    missing = [name for name in ("group", "topic", "queue", "to") if name not in options]
    if missing:
        raise InvalidArgument(f"offsets set requires {missing[0]}")
    return OffsetChange(options["group"], TopicQueue(options["topic"], options["queue"]), options["to"])


# --- what only looks --------------------------------------------------------------------------------------------------


def _check(disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
    from engine.inspect.check.check import check
    from engine.repair.recover.following import mended_by_recovery

    del options
    checked = check(disk, config, mended=mended_by_recovery(disk))
    return _looked(checked.findings, ok=checked.ok)


def _doctor(disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
    from engine.inspect.check.doctor import doctor

    del options
    diagnosis = doctor(disk, config)
    return _looked(diagnosis.findings, ok=diagnosis.starts)


def _plan_start(disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
    from engine.repair.start.plan_start import plan_start

    del options
    plan = plan_start(disk, config)
    if plan.refusal is not None:
        raise plan.refusal
    return CommandOutcome(summary="a broker would lose nothing")


def _verify_crc(disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
    from engine.inspect.check.verify import verify

    del options
    verified = verify(disk, config)
    summary = f"{counted(verified.records, 'record')}, {len(verified.bad)} bad"
    return CommandOutcome(1 if verified.bad else 0, None, summary)


def _looked(findings: tuple[Finding, ...], *, ok: bool) -> CommandOutcome:
    codes = tuple(dict.fromkeys(finding.code for finding in findings))
    return CommandOutcome(0 if ok else 1, None, ", ".join(codes) or "no findings", findings=codes)


def _of_backups(name: str) -> Callable[[Disk, StoreConfig, Options], CommandOutcome]:
    """A command of backups.py, which is loaded when it runs."""

    def run(disk: Disk, config: StoreConfig, options: Options) -> CommandOutcome:
        from engine.drill import backups

        outcome: CommandOutcome = getattr(backups, name)(disk, config, options)
        return outcome

    return run


COMMANDS: Mapping[str, Command] = {
    "init": Command(_init),
    "recover": Command(
        _Rehearsed(_recover, lambda plan: _repaired(plan.repair), log_end=lambda plan: plan.repair.log.end.end),
        {"normal": bool, "abnormal": bool, "bridge": bool, "cut": bool, "whole": bool, "no_salvage": bool},
    ),
    "truncate": Command(
        _Rehearsed(_truncate, lambda plan: _repaired(plan.repair), log_end=lambda plan: plan.repair.log.end.end),
        {"to_record": int, "to_offset": int, "to_time": int, "whole": bool, "no_salvage": bool},
    ),
    "reindex": Command(
        _Rehearsed(_reindex, _swapped),
        {"consumequeue": bool, "index": bool, "topic": str, "from": int},
    ),
    "expire": Command(
        _Rehearsed(
            _expire,
            lambda plan: f"{counted(len(plan.removed), 'file')} deleted, log start {plan.log_min}",
            log_begin=lambda plan: plan.log_min,
        ),
        {"force": bool, "reserved_hours": float, "disk_ratio": int},
    ),
    "offsets set": Command(
        _Rehearsed(_set_offset, lambda plan: f"{plan.group} reads {plan.new} next"),
        {"group": str, "topic": str, "queue": int, "to": int},
    ),
    "undo": Command(
        _Rehearsed(
            _undo,
            lambda plan: f"{counted(len(plan.repairs), 'repair')} undone, {plan.bytes_restored} bytes restored",
        )
    ),
    "backup init": Command(_of_backups("backup_init"), {"key": str}),
    "backup create": Command(_of_backups("backup_create"), {"key": str, "full": bool}),
    "backup check": Command(_of_backups("backup_check"), {"key": str}, reads=True),
    "restore": Command(_of_backups("restore_store"), {"key": str, "to_time": int, "to_offset": int}),
    "check": Command(_check, reads=True),
    "doctor": Command(_doctor, reads=True),
    "plan-start": Command(_plan_start, reads=True),
    "verify-crc": Command(_verify_crc, reads=True),
}
"""Every command that a drill can run, by its name on the command line; options with `_` for `-`.

`to_record` is a drill's own: the log ends after its first so many records.
"""
