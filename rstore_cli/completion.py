"""What a shell shows when Tab is pressed: commands, options, and the topics, groups, queues and repairs of the store;
topics, groups and brokers of a cluster where the command asks one.

The shell's function (completion_scripts) runs `rstore` with the words typed so far and _RSTORE_COMPLETE in the
environment; each line of the answer is a kind (plain, file, dir), a value and what it means, with tabs between. A store
that is not there, or can't be read, has no names: nothing is said of it; nor of a cluster that does not answer.

The words are followed here, and not by the parser: it would import every command to list them, and gives up at a line
that is not complete yet.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from engine.dataclass import dataclass

VARIABLE = "_RSTORE_COMPLETE"
"""Set by the shell's function: answer, and do nothing else."""
_STORE, _CONFIG, _NAMESRV = frozenset({"--store"}), frozenset({"--config", "-c"}), frozenset({"--namesrv"})
_PATHS = {"DIR": "dir", "STORE": "dir", "TABLE": "dir", "FILE": "file", "PATH": "file"}
_NAMES = {"topic": "topics", "topics": "topics", "group": "groups", "groups": "groups", "repair": "repairs",
          "repairs": "repairs", "queue": "queues"}  # fmt: skip
"""What a parameter of that name is given: a property of StoreNames."""

_OF_CLUSTER = {"topic": "topics", "group": "groups", "source": "groups", "target": "groups", "broker": "brokers",
               "cluster": "clusters"}  # fmt: skip
"""The same of a command that asks a cluster, where the line or NAMESRV_ADDR names one: a property of ClusterNames."""

Row = tuple[str, str, str]
"""Kind, value, meaning."""


@dataclass(slots=True)
class _Line:
    """What the words before the cursor are: the command that they name, its arguments, options with their values."""

    command: Any
    arguments: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    store: Path | None = None
    config: Path | None = None
    namesrv: str | None = None
    waiting: Any = None
    only_arguments: bool = False


def answer(words: Sequence[str], program: Any) -> None:
    """Print what may stand for the last of these words. `program`: the root command, as the parser has it."""
    if os.environ.get(VARIABLE) == "bash":
        words = [_unquoted(word) for word in words]
    *before, current = words or [""]
    for kind, value, meaning in rows(before, current, program):
        sys.stdout.write(f"{kind}\t{value}\t{meaning}\n")


def rows(before: Sequence[str], current: str, program: Any) -> Iterator[Row]:
    """What may stand for `current`, after the words `before` of a line that `program` would get."""
    line = _read(_joined(before), program)
    if line is None:
        return
    option, sign, value = current.partition("=")
    params = line.command.params
    if line.waiting is not None:
        yield from _values(line, line.waiting, current)
    elif current.startswith("--") and sign and not line.only_arguments:
        for param in params:
            if option in param.opts and _takes_value(param):
                yield from ((kind, f"{option}={one}", meaning) for kind, one, meaning in _values(line, param, value))
    elif current.startswith("-") and not line.only_arguments:
        yield from _options(line, current)
    elif (inner := _inner(line.command)) is not None:
        yield from (("plain", name, meaning) for name, meaning in inner.items() if name.startswith(current))
    else:
        arguments = [param for param in params if param.param_type_name == "argument"]
        at = len(line.arguments)
        wanted = (
            arguments[at] if at < len(arguments) else arguments[-1] if arguments and arguments[-1].nargs == -1 else None
        )
        if wanted is not None:
            yield from _values(line, wanted, current)


def _unquoted(word: str) -> str:
    """What a word of the line stands for: bash hands it over as it was typed, perhaps with a quote still open."""
    for closed in (word, word + '"', word + "'"):
        with contextlib.suppress(ValueError):
            return "".join(shlex.split(closed))
    return word


def _joined(words: Sequence[str]) -> list[str]:
    """bash takes --store=/data for three words: they are one again."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and (word == "=" or joined[-1].endswith("=")):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _read(words: Sequence[str], program: Any) -> _Line | None:
    """Follow the words; None where they name no command."""
    line = _Line(program, namesrv=os.environ.get("NAMESRV_ADDR") or None)
    for key, variable in (("store", "RSTORE_STORE"), ("config", "RSTORE_CONF")):
        if value := os.environ.get(variable):
            setattr(line, key, Path(value).expanduser())
    for word in words:
        if line.waiting is not None:
            _take(line, line.waiting, word)
        elif word == "--" and not line.only_arguments:
            line.only_arguments = True
        elif word.startswith("-") and len(word) > 1 and not line.only_arguments:
            option, sign, value = word.partition("=")
            param = next((one for one in line.command.params if option in one.opts), None)
            line.seen.add(option)
            if param is not None and _takes_value(param):
                line.waiting = param
                if sign:
                    _take(line, param, value)
        elif (inner := _inner(line.command)) is not None:
            if word not in inner:
                return None
            line.command = line.command.get_command(None, word)
        else:
            line.arguments.append(word)
    return line


def _take(line: _Line, param: Any, value: str) -> None:
    line.waiting = None
    if _STORE & set(param.opts):
        line.store = Path(value).expanduser()
    elif _CONFIG & set(param.opts):
        line.config = Path(value).expanduser()
    elif _NAMESRV & set(param.opts):
        line.namesrv = value


def _asks_a_cluster(command: Any) -> bool:
    return any(_NAMESRV & set(param.opts) and param.envvar for param in command.params)


def _takes_value(param: Any) -> bool:
    return param.param_type_name == "option" and not param.is_flag


def _inner(command: Any) -> dict[str, str] | None:
    """A group's commands with what they do; None: it is no group."""
    summaries: dict[str, str] | None = getattr(command, "summaries", None)
    if summaries is not None:
        return summaries
    commands = getattr(command, "commands", None)
    return None if commands is None else {name: one.get_short_help_str(200) for name, one in commands.items()}


def _options(line: _Line, current: str) -> Iterator[Row]:
    for param in line.command.params:
        if param.param_type_name != "option" or param.hidden or (line.seen & set(param.opts) and not param.multiple):
            continue
        meaning = " ".join((param.help or "").split())
        yield from (("plain", one, meaning) for one in param.opts if one.startswith(current))
    yield from (("plain", one, "Show the help.") for one in ("-h", "--help") if one.startswith(current))


def _values(line: _Line, param: Any, current: str) -> Iterator[Row]:
    choices = getattr(param.type, "choices", None)
    metavar = (param.metavar or "").strip("[].").split(" ")[0].rstrip(".]")
    if choices is not None:
        values = (str(getattr(one, "value", one)) for one in choices)
        yield from (("plain", one, "") for one in values if one.startswith(current))
    elif line.namesrv and param.name in _OF_CLUSTER and _asks_a_cluster(line.command):
        from rstore_cli.cluster_names import ClusterNames

        of_cluster = ClusterNames(line.namesrv)
        every = getattr(of_cluster, _OF_CLUSTER[param.name])
        yield from (("plain", name, "") for name in every if name.startswith(current))
    elif param.name in _NAMES:
        from rstore_cli.store_names import StoreNames

        names = StoreNames(line.store, line.config, line.arguments)
        yield from (("plain", name, "") for name in getattr(names, _NAMES[param.name]) if name.startswith(current))
    elif metavar in _PATHS:
        yield _PATHS[metavar], current, ""
