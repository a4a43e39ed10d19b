"""What to do next about a store: one answer for one state, whoever is asked.

status, doctor and check name what they found by the same codes (finding.py); a recovery that refuses names the same
ones. Each code says what mends it (`Fix`), and `next_step` makes of all of them the one command to run now: the first
in the order of `Fix`. A command that has not read the log never ends with nothing to do: it names the one that reads.

Going by these words always goes forward. status, doctor → check (reads everything) → recover, recover --whole or
recover --bridge (changes, or refuses naming a stronger one) → check. None of them names one that stands before it, but
check after something was changed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import CannotRepair, NextStep, Refused
from engine.format.quantities import counted
from engine.inspect.finding import Finding
from engine.inspect.finding_codes import Fix, Severity

if TYPE_CHECKING:
    from engine.config import StoreConfig

_COMMANDS: dict[Fix, tuple[tuple[str, ...], str, str | None]] = {
    Fix.UNDO: (("undo",), "finishes the undo that was interrupted", None),
    Fix.BRIDGE: (
        ("recover", "--bridge"),
        "writes inert records over the damage",
        "keeps every sound message, before and after the damage",
    ),
    Fix.REBUILD: (
        ("recover", "--whole"),
        "reads the whole log and every index file, and repairs what does not match the log",
        "refuses if a sound message would be lost",
    ),
    Fix.RECOVER: (("recover",), "shows what it will change, and asks", "refuses if a sound message would be lost"),
    Fix.CONFIG: (
        ("rebuild-config",),
        "rebuilds broken or missing configuration files from log, queues and backups, and asks",
        None,
    ),
}
_ORDER = tuple(Fix)
STORE_COMMANDS = (
    *("init", "put", "get", "query", "recover", "salvage", "undo", "plan-start", "truncate", "reindex", "expire"),
    *("rebuild-config", "config", "offsets", "dump", "verify-crc", "check", "doctor", "status", "flush", "serve"),
    *(
        "replicate",
        "rewind",
        "promote",
        "tail",
        "trace",
        "backup",
        "seal",
        "scrub",
        "heal",
        "restore",
        "report",
        "console",
        "top",
    ),
)
"""Commands that go by --store and -c."""
_NAMED = re.compile(rf"\brstore (?=(?:{'|'.join(STORE_COMMANDS)})\b(?!-| --conf\b|[^(),;\n]* --store ))")
"""What stands before such a command in a text. `doctor --conf FILE` is about the file alone, and a command as it was
typed may name the store after its word."""
NEWER = "newer-store"
"""The finding of a store that is not repaired here; one whose parts of RocketMQ 5 repairs keep right has another:"""
REPAIRED = "newer-part"
_OF_A_DATABASE = ("rocksdb-damage", "queue-end", "unit-twice")
"""Of RocketMQ 5, and what its broker does not mend by itself."""
DLEDGER = "dledger-store"
"""The finding of a store whose log is DLedger's: it is never changed here."""
THEIRS = NextStep(
    None,
    "start the store's own RocketMQ 5 broker, which recovers it; of one with these parts rstore repairs nothing but "
    "the log beside queues in RocksDB (recover, truncate)",
)


def command_line(config: StoreConfig, *words: str) -> str:
    """A command of rstore for this store, as a shell takes it."""
    return shlex.join(("rstore", *config.typed, *words))


def arguments(*words: str) -> tuple[str, ...]:
    """Arguments that stand by their place, distinguished from options where one begins with a dash."""
    return ("--", *words) if any(word.startswith("-") for word in words) else words


def for_store(typed: Sequence[str], text: str) -> str:
    """A text for who named the store with the arguments `typed`: each command in it names it, too, to be copied."""
    return _NAMED.sub(lambda _: shlex.join(("rstore", *typed)) + " ", text) if typed else text


def step(config: StoreConfig, fix: Fix) -> NextStep:
    """The command that mends what `fix` stands for."""
    words, why, keeps = _COMMANDS[fix]
    return NextStep(command_line(config, *words), why, keeps)


def cut(config: StoreConfig, records: int) -> NextStep:
    """Ending the log at damage that can't be bridged; `records` sound ones lie after it."""
    return NextStep(
        command_line(config, "recover", "--cut"),
        "ends the log there",
        f"saves the {counted(records, 'sound record')} after it, which rstore salvage replay puts back"
        if records
        else None,
    )


def cut_before(config: StoreConfig, offset: int) -> NextStep:
    """Ending the log before records that belong elsewhere."""
    return NextStep(
        command_line(config, "truncate", "--to-offset", str(offset)),
        "ends the log before them",
        "saves the records after it, which rstore salvage replay puts back",
    )


def read(config: StoreConfig) -> NextStep:
    """For a command that has not read the log."""
    return NextStep(command_line(config, "check"), "reads the log, queues and index, which this command did not read")


def read_newer(config: StoreConfig) -> NextStep:
    """Likewise, for a store of RocketMQ 5."""
    return NextStep(
        command_line(config, "check"), "reads the log, and the other parts of a RocketMQ 5 store that rstore can read"
    )


def search_log(config: StoreConfig, text: str) -> NextStep:
    """For a message that the index does not lead to: every message of the log, those with a text in them."""
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    grep = shlex.join(("grep", "-F", "--", plain))
    return NextStep(f"{command_line(config, 'dump', 'commitlog', '--json')} | {grep}", "searches the log itself")


def look(config: StoreConfig) -> NextStep:
    """After a repair was taken back."""
    return NextStep(command_line(config, "status"), "shows the state of the store")


def not_closed(config: StoreConfig) -> CannotRepair:
    """The refusal of a command that works on a closed store only."""
    recovery = step(config, Fix.RECOVER)
    return CannotRepair("the store was not closed", path=os.fspath(config.store_path_root_dir), next_step=recovery)


def needs_recovery(config: StoreConfig) -> Refused:
    """The refusal of a put into a store that a recovery would change."""
    return Refused(
        "the store must be recovered before messages can be put into it",
        path=os.fspath(config.store_path_root_dir),
        next_step=step(config, Fix.RECOVER),
    )


def queues_anew(config: StoreConfig, database: str) -> NextStep:
    """Units are missing in a database with queues, and its broker does not write single ones again: measured with
    5.3.3 and 5.5.0, which continue after the last record that has its units."""
    return NextStep(
        None,
        f"stop the broker, then {command_line(config, 'recover')} sets the database in {database}/ aside: "
        "its 5.x broker makes the queues anew from the log when it starts; it writes no single unit again",
    )


def bring(what: str) -> NextStep:
    """Something that no command can do."""
    return NextStep(None, what)


def of_findings(
    config: StoreConfig, findings: Sequence[Finding], *, everything: bool, live: bool = False
) -> NextStep | None:
    """What to do next about these findings, None for nothing.

    `everything`: log, queues and index were read. `live`: a process has the store, so nothing can be repaired yet.
    """
    wrong = [one for one in findings if one.severity is not Severity.INFO]
    if any(one.code == NEWER for one in findings):
        damaged = next((one for one in wrong if one.code in _OF_A_DATABASE), None)
        if damaged is not None:
            return bring(for_store(config.typed, f"{damaged.where}: {damaged.hint}"))
        return None if everything and not wrong else THEIRS if wrong else read_newer(config)
    if any(one.code == DLEDGER for one in findings):
        return _of_dledger(config, wrong) if wrong else None if everything else read(config)
    first = min(wrong, key=lambda one: _ORDER.index(one.fix), default=None)
    if first is None or (first.fix in (Fix.ADVISE, Fix.NOTHING) and not everything):
        return None if everything else read(config)
    if first.fix not in _COMMANDS:
        return bring(f"{first.where}: {first.hint}" if first.where else first.hint)
    following = step(config, first.fix)
    return bring(f"stop the process that has the store open, then run {following}") if live else following


def _of_dledger(config: StoreConfig, wrong: Sequence[Finding]) -> NextStep:
    """What to do about a DLedger store: its broker ends the log at damage (DLedgerMmapFileStore#recover), and gets what
    follows from the leader of its group alone."""
    if all(one.severity is not Severity.ERROR for one in wrong):
        return bring("start the store's own broker, which recovers it; rstore never changes a DLedger store")
    return bring(
        "where its group has a leader with the whole log, start the store's own broker, which gets from it what "
        f"follows the damage; else save every sound message: {plain_store(os.fspath(config.store_path_root_dir))}"
    )


def plain_store(root: str) -> str:
    """The command that makes a plain store of the DLedger store in a directory."""
    return f"rstore --store NEW-DIR restore --from-dledger {shlex.quote(root)}"


def advised(config: StoreConfig, findings: Sequence[Finding], following: NextStep | None) -> tuple[Finding, ...]:
    """The findings, with hints that name the command to run: for what a repair mends, the one that comes next."""
    out = []
    for one in findings:
        hint = for_store(config.typed, one.hint)
        if one.fix in _COMMANDS and one.severity is not Severity.INFO and following is not None:
            hint = f"{hint}; next: {following}" if hint else str(following)
        out.append(replace(one, hint=hint))
    return tuple(out)
