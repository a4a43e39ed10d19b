"""The commands that a drill runs: one registry, an entry a command, each plan + apply as `rstore` itself does them.

A command gets the disk that it shall work on, so that it can be killed, cut from power, or run out of space at any
operation. What it answers is what the command line would: an exit code, and the error's code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.errors import InvalidArgument, RStoreError

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.repair.finding import Finding

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended.

    Attributes:
        exit: the exit code.
        error: the error's code, None when there was none.
        said: one line.
        changed: whether it had anything to change.
        findings: codes of what it found.
        log_end: physical offset where it left the log's end; None where that is not its business.
    """

    exit: int = 0
    error: str | None = None
    said: str = ""
    changed: bool = False
    findings: tuple[str, ...] = ()
    log_end: int | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `options`: what a script may give, and of which type. `reads`: it writes nothing."""

    run: Callable[[Disk, StoreConfig, Options], Outcome]
    options: Mapping[str, type] = field(default_factory=dict)
    reads: bool = False


def execute(name: str, disk: Disk, config: StoreConfig, options: Options) -> Outcome:
    """Run a command of the registry; an error of the engine is an outcome, as on the command line."""
    try:
        return COMMANDS[name].run(disk, config, options)
    except RStoreError as error:
        return Outcome(error.exit_code, error.code, str(error))


# --- what changes a store ---------------------------------------------------------------------------------------------


def _init(disk: Disk, config: StoreConfig, options: Options) -> Outcome:
    from engine.repair.create import create_store

    del options
    create_store(disk, config)
    return Outcome(said="an empty store", changed=True)


def _recover(disk: Disk, config: StoreConfig, options: Options) -> Outcome:
    from engine.files.lock import StoreLock
    from engine.repair.apply import apply
    from engine.repair.log_end import Mode
    from engine.repair.recover import plan_recover
    from engine.repair.survey import survey

    if options.get("normal") and options.get("abnormal"):
        raise InvalidArgument("normal and abnormal exclude each other")
    mode = Mode.NORMAL if options.get("normal") else Mode.ABNORMAL if options.get("abnormal") else None
    with StoreLock(disk, survey(disk, config).root):
        plan = plan_recover(
            disk, config, mode=mode, cut=bool(options.get("cut")), bridge=bool(options.get("bridge"))
        )
        if not options.get("dry_run"):
            apply(disk, plan, keep=not options.get("no_salvage"))
        elif plan.refusal is not None:
            raise plan.refusal
    end = plan.log.end
    parts = {
        "bytes cut": plan.log.bytes_cut,
        "places bridged": len(plan.log.bridges),
        "units rebuilt": sum(queue.units_rebuilt for queue in plan.queues),
        "keys put": plan.index.keys_put,
    }
    said = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
    exit_code = int(plan.changed) if options.get("dry_run") else 0
    return Outcome(exit_code, None, said or "nothing to mend", plan.changed, log_end=end.end)


# --- what only looks --------------------------------------------------------------------------------------------------


def _check(disk: Disk, config: StoreConfig, options: Options) -> Outcome:
    from engine.repair.check import check

    del options
    found = check(disk, config)
    return _found(found.findings, ok=found.ok)


def _doctor(disk: Disk, config: StoreConfig, options: Options) -> Outcome:
    from engine.repair.doctor import doctor

    del options
    found = doctor(disk, config)
    return _found(found.findings, ok=found.starts)


def _verify_crc(disk: Disk, config: StoreConfig, options: Options) -> Outcome:
    from engine.repair.verify import verify

    del options
    found = verify(disk, config)
    said = f"{found.records} records, {len(found.bad)} bad"
    return Outcome(1 if found.bad else 0, None, said)


def _found(findings: tuple[Finding, ...], *, ok: bool) -> Outcome:
    codes = tuple(dict.fromkeys(finding.code for finding in findings))
    return Outcome(0 if ok else 1, None, ", ".join(codes) or "no findings", findings=codes)


def root_of(config: StoreConfig) -> str:
    """The store's directory."""
    return os.fspath(config.store_path_root_dir)


COMMANDS: Mapping[str, Command] = {
    "init": Command(_init),
    "recover": Command(
        _recover,
        {
            "normal": bool,
            "abnormal": bool,
            "bridge": bool,
            "cut": bool,
            "dry_run": bool,
            "no_salvage": bool,
        },
    ),
    "check": Command(_check, reads=True),
    "doctor": Command(_doctor, reads=True),
    "verify-crc": Command(_verify_crc, reads=True),
}
"""Every command that a drill can run, by its name on the command line; options with `_` for `-`."""
