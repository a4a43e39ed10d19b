"""Reads a drill's script, strictly: an unknown key, a wrong type or an invalid step is an error with its place.

The dataclasses of `script` are the grammar: a key is a field, its type the field's.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from engine.drill.commands import COMMANDS
from engine.drill.script import (
    STEPS,
    AnyStep,
    Close,
    Crash,
    DamageStep,
    Drill,
    Expect,
    Open,
    Put,
    Room,
    RunCommand,
    StoreSpec,
    name_of,
)
from engine.errors import InvalidArgument, from_os_error
from engine.format.index_file import IndexLayout
from engine.format.queue_unit import UNIT_SIZE
from engine.format.topic_rules import refused_by_client
from engine.inspect.check.doctor import DOCTOR_CODES
from engine.inspect.finding_codes import CODES

_T = TypeVar("_T")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
CLIENTS_MAX = 64
PATIENCE_MS = 10_000
_HELP = "compare: rstore drill show disk-full-real; engine/drill/DRILLS.md has the language"
RESERVED = ("all", "list", "run", "show")
BEFORE, PLANNED = "before", "planned"
"""States that a crash step remembers by itself: before it, and as it ends when nothing fails."""


class _Wrong(Exception):
    """Something is wrong at a place in the script."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")


def read_script(path: Path) -> Drill:
    """The drill in a file.

    Raises:
        InvalidArgument: it is no drill; says where. StorageError: it can't be read.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise from_os_error(error, "reading the drill", path) from None
    return parse_script(text, str(path))


def parse_script(text: bytes, source: str) -> Drill:
    """The drill in a script's bytes. Raises InvalidArgument."""
    try:
        script = text.decode("utf-8")
        return _drill(tomllib.loads(script), source, script)
    except UnicodeDecodeError as error:
        raise InvalidArgument("the drill is not UTF-8", path=source, offset=error.start) from None
    except (tomllib.TOMLDecodeError, _Wrong) as error:
        kind = "the drill is not TOML: " if isinstance(error, tomllib.TOMLDecodeError) else ""
        raise InvalidArgument(f"{kind}{error}", path=source, hint=_HELP) from None


def _drill(table: Mapping[str, Any], source: str, text: str) -> Drill:
    _known(table, ("name", "purpose", "store", "step"), "the drill")
    name, purpose = (_value(table.get(key), str, key) for key in ("name", "purpose"))
    if not _NAME.fullmatch(name):
        raise _Wrong("name", f"{name!r}: small letters, digits and single hyphens")
    if name in RESERVED:
        raise _Wrong("name", f"{name!r} is reserved for the command line")
    step_tables = table.get("step", [])
    if not isinstance(step_tables, list) or not step_tables:
        raise _Wrong("step", "a drill requires steps: [[step]] tables")
    steps = _patient(_step(one, f"step {number}") for number, one in enumerate(step_tables, 1))
    store = _table(StoreSpec, table.get("store", {}), "store")
    drill = Drill(name, purpose, steps, store, source, text)
    _check(drill)
    return drill


def _patient(steps: Iterable[AnyStep]) -> tuple[AnyStep, ...]:
    """Puts once there is space again are tried for PATIENCE_MS: an open store takes a moment to see that there is.

    Not those that are expected to be refused, nor those with a patience of their own.
    """
    patient: list[AnyStep] = []
    again = False
    for step in steps:
        if isinstance(step, Room):
            again = step.free
        full = isinstance(step, Put) and step.crash is not None and step.crash.how == "disk-full"
        if isinstance(step, Put) and not step.patience_ms and (full or (again and not step.expect.refused)):
            step = replace(step, patience_ms=PATIENCE_MS)  # noqa: PLW2901
        patient.append(step)
    return tuple(patient)


def _step(table: Any, where: str) -> AnyStep:
    if not isinstance(table, dict):
        raise _Wrong(where, "a table")
    kind = _value(table.get("do"), str, f"{where}, do")
    if kind not in STEPS:
        raise _Wrong(f"{where}, do", f"{kind!r}{_meant(kind, STEPS)}; there are {', '.join(STEPS)}")
    step = _table(STEPS[kind], {key: value for key, value in table.items() if key != "do"}, f"{where} ({kind})")
    if isinstance(step, RunCommand):
        _check_command(step, where)
    return step


# --- types ------------------------------------------------------------------------------------------------------------


def _table(kind: type[_T], table: Any, where: str) -> _T:
    """A dataclass from a table."""
    if not isinstance(table, dict):
        raise _Wrong(where, "a table")
    hints = _hints(kind)  # type: ignore[arg-type]
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    _known(table, tuple(fields), where, STEPS if kind in STEPS.values() else {})
    for name, field in fields.items():
        missing = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if missing and name not in table:
            raise _Wrong(where, f"{name} is missing")
    return kind(**{name: _value(value, hints[name], f"{where}, {name}") for name, value in table.items()})


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of a dataclass's fields. Kept: to evaluate them takes longer than to read a script."""
    return get_type_hints(kind)


def _value(value: Any, kind: Any, where: str) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if value is None:
        raise _Wrong(where, "is missing")
    if origin in (Union, types.UnionType):
        return _value(value, next(one for one in args if one is not type(None)), where)
    if origin is Literal:
        if value not in args:
            raise _Wrong(where, f"{value!r}{_meant(value, args)}; there are {', '.join(args)}")
        return value
    if origin is tuple:
        some = value if isinstance(value, list) else [value]
        if not some:
            raise _Wrong(where, "is empty")
        return tuple(_value(one, args[0], where) for one in some)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _table(kind, value, where)
    if origin is not None:  # a mapping of its own: a command's options
        if not isinstance(value, dict):
            raise _Wrong(where, "a table")
        return dict(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    right = whole if kind is int else whole or isinstance(value, float) if kind is float else isinstance(value, kind)
    if not right:
        raise _Wrong(where, f"{_WORDS[kind]}, not {value!r}")
    return value


def _known(
    table: Mapping[str, Any], names: Sequence[str], where: str, steps: Mapping[str, type[AnyStep]] | None = None
) -> None:
    """Raises for a key that is not one of `names`; `steps`: other steps that may have it."""
    for key in table:
        if key not in names:
            owners = [name for name, kind in (steps or {}).items() if key in kind.__dataclass_fields__]
            other = f" (a key of {' and '.join(owners)})" if owners else _meant(key, names)
            raise _Wrong(where, f"unknown key {key!r}{other}; there are {', '.join(names)}")


def _meant(word: object, names: Any) -> str:
    """The nearest of the names; or the one that it begins with, as of Apache's SYNC_FLUSH."""
    lower = str(word).lower()
    some = [str(name) for name in names]
    close = get_close_matches(lower, some, 1) or [name for name in some if lower.startswith(name)]
    return f" (did you mean {close[0]}?)" if close else ""


# --- sense ------------------------------------------------------------------------------------------------------------


def _check_command(step: RunCommand, where: str) -> None:
    if step.name not in COMMANDS:
        raise _Wrong(f"{where}, name", f"{step.name!r}{_meant(step.name, COMMANDS)}; there are {', '.join(COMMANDS)}")
    command = COMMANDS[step.name]
    _known(step.options, tuple(command.options), f"{where}, options of {step.name}")
    for key, value in step.options.items():
        _value(value, command.options[key], f"{where}, options, {key}")
    if command.reads and step.crash is not None:
        raise _Wrong(f"{where}, crash", f"{step.name} only reads, so it can't be interrupted")


def _check(drill: Drill) -> None:
    """What no single key can tell: the order of steps, and names that are used."""
    _check_store(drill.store)
    is_open = served = False
    remembered: set[str] = set()
    for number, step in enumerate(drill.steps, 1):
        where = f"step {number} ({name_of(step)})"
        crash = step.crash if isinstance(step, Put | RunCommand) else None
        if isinstance(step, Open | Close) and is_open is isinstance(step, Open):
            raise _Wrong(where, "the store is open already" if is_open else "the store is not open")
        if isinstance(step, Open | Close):
            is_open = isinstance(step, Open)
            served = isinstance(step, Open) and step.serve
        if is_open and (isinstance(step, RunCommand | DamageStep) or crash is not None):
            raise _Wrong(where, "the store is open: close it first")
        _check_numbers(drill, step, where)
        if crash is not None:
            remembered |= {BEFORE, PLANNED} if isinstance(step, RunCommand) else set()
            if isinstance(step, Put) and (step.expect.refused is not None) != (crash.how == "disk-full"):
                raise _Wrong(f"{where}, expect", "refused is required for puts on a full disk")
        _check_expect(step, step.expect, is_open, remembered, where)
        for key in ("consumed", "tables"):
            if getattr(step.expect, key) is not None and not served:
                raise _Wrong(f"{where}, expect", f"{key} requires the daemon: open the store with serve = true")
        if step.remember is not None:
            remembered.add(step.remember)
    if is_open:
        raise _Wrong(f"step {len(drill.steps)}", "the store is left open: end with a close")


def _check_expect(step: AnyStep, expect: Expect, is_open: bool, remembered: set[str], where: str) -> None:
    where += ", expect"
    command = {"exit", "error", "changed", "findings"}
    given = {field.name for field in dataclasses.fields(expect) if getattr(expect, field.name) is not None}
    if given & command and not isinstance(step, RunCommand):
        raise _Wrong(where, f"{min(given & command)} is expected of a command")
    killed = isinstance(step, RunCommand) and step.crash is not None and step.crash.how != "disk-full"
    if killed and given & command:
        raise _Wrong(where, f"{min(given & command)}: an interrupted command has none")
    if expect.refused is not None and not isinstance(step, Put):
        raise _Wrong(where, "refused is expected of a put")
    if is_open and given & {"check", "store", "bytes", "settled", "takes_puts"}:
        raise _Wrong(where, "only puts and reads of an open store can be checked: close it first")
    if expect.may_find is not None and expect.check is None:
        raise _Wrong(where, "may_find requires check")
    for code in (*(expect.findings or ()), *(expect.may_find or ())):
        if code not in CODES and code not in DOCTOR_CODES:
            raise _Wrong(where, f"unknown finding {code!r}{_meant(code, [*CODES, *DOCTOR_CODES])}")
    for name in (*(expect.store or ()), *(expect.bytes or ())):
        if name not in remembered:
            raise _Wrong(where, f"no step remembers {name!r}")


def _check_store(store: StoreSpec) -> None:
    sizes = ("commitlog_file_size", "queue_file_units", "index_slots", "index_entries", "file_system")
    for key in sizes:
        value = getattr(store, key)
        if value is not None and value < 1:
            raise _Wrong(f"store, {key}", f"at least 1, not {value}")
    index = IndexLayout(store.index_slots, store.index_entries).file_size
    first = store.commitlog_file_size + store.queue_file_units * UNIT_SIZE + index
    if store.file_system is not None and store.file_system <= first:
        why = f"{store.file_system} bytes are too few: the first files of log, queue and index take {first}"
        raise _Wrong("store, file_system", why)


def _check_topics(topics: Sequence[str], where: str) -> None:
    for topic in topics:
        why = refused_by_client(topic)
        if why is not None:
            several = [one.strip() for one in topic.split(",")]
            listed = ", ".join(f'"{one}"' for one in several)
            more = f"; several topics: [{listed}]" if len(several) > 1 else ""
            raise _Wrong(f"{where}, topics", f"{topic!r}: {why}{more}")


def _check_numbers(drill: Drill, step: AnyStep, where: str) -> None:
    def demand(ok: bool, key: str, why: str) -> None:
        if not ok:
            raise _Wrong(f"{where}, {key}", why)

    match step:
        case Put():
            demand(step.count > 0, "count", "at least 1")
            demand(step.queues > 0, "queues", "at least 1")
            size = drill.store.commitlog_file_size
            demand(
                1 < step.body < size // 4,
                "body",
                f"{step.body}: 2 or more, and less than a quarter of a log file (commitlog_file_size = {size})",
            )
            _check_topics(step.topics, where)
            demand(step.patience_ms >= 0, "patience_ms", "not below 0")
            demand(1 <= step.clients <= CLIENTS_MAX, "clients", f"1 to {CLIENTS_MAX}")
        case Open():
            demand(step.queues > 0, "queues", "at least 1")
            _check_topics(step.topics, where)
        case DamageStep():
            demand(0 <= step.at <= 1, "at", "from 0 (the front) to 1 (the end)")
            demand(step.count > 0, "count", "at least 1")
            demand(not step.last_files or step.where == "commitlog", "last_files", "requires where = commitlog")
            wants = step.kind in ("remove", "stray")
            demand((step.path is not None) == wants, "path", "is for remove and stray, and required there")
            of_backups = step.where != "repository" or step.kind == "bit-rot"
            demand(of_backups, "where", "repository requires kind = bit-rot")
            inside = step.path is None or not (Path(step.path).is_absolute() or ".." in Path(step.path).parts)
            demand(inside, "path", "below the store")
        case Room():
            given = [step.used_ratio is not None, step.leave is not None, step.free]
            if sum(given) != 1:
                raise _Wrong(where, "give one of used_ratio = RATIO, leave = BYTES and free = true")
            demand(step.used_ratio is None or 0 <= step.used_ratio <= 1, "used_ratio", "0 to 1")
            if step.leave is not None:
                space = drill.store.file_system
                if space is None:
                    raise _Wrong(f"{where}, leave", "requires a disk of its own: file_system = BYTES in [store]")
                demand(0 <= step.leave < space, "leave", f"{step.leave}: from 0, below file_system = {space}")
        case _:
            pass
    crash = step.crash if isinstance(step, Put | RunCommand) else None
    demand(crash is None or crash.sample > 0, "crash, sample", "at least 1")
    demand(crash is None or crash.how == "power-cut" or crash == Crash(crash.how, sample=crash.sample), "crash",
           "lose and torn are the power cut's")  # fmt: skip
    takes = step.expect.takes_puts
    demand(takes is None or takes > 0, "expect, takes_puts", "at least 1")
