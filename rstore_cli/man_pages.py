"""man pages, made from the commands themselves: one of the program, one of each command. setup.py builds them into the
wheel (share/man/man1)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from rstore_cli._common import ENVIRONMENT, FOUND, INTERRUPTED, LOCKED, OK, PIPE_CLOSED, REFUSED, USAGE
from rstore_cli.app import COMMANDS, command_of, root_command
from rstore_cli.completion_scripts import SCRIPTS

EXITS = {
    OK: "Done; or, of a dry run, nothing would change.",
    FOUND: "Done, but there are problems, or nothing was found; or a dry run that would change something.",
    USAGE: "The command line or a setting is wrong.",
    LOCKED: "The store is locked by another process.",
    REFUSED: "Refused: a message would be lost, or the store is not in a state for this.",
    ENVIRONMENT: "The system: disk, network, permissions, or a bug in rstore.",
    INTERRUPTED: "Interrupted (Ctrl-C).",
    PIPE_CLOSED: "The reader of the output closed it.",
}
_VARIABLES = {
    "RSTORE_STORE": "The store's directory, as --store gives it.",
    "RSTORE_CONF": "The broker's properties file, as -c gives it.",
    "RSTORE_DEBUG": "1: an error is shown with its traceback.",
    "NO_COLOR": "No colour on a terminal. TERM=dumb has no colour either.",
    "COLUMNS": "The width of the terminal; overrides the system's value.",
}
_COMMON = ("store", "config", "json", "quiet")
_PLACES = {"bash": "bash-completion/completions/rstore", "zsh": "zsh/site-functions/_rstore",
           "fish": "fish/vendor_completions.d/rstore.fish"}  # fmt: skip


def pages(version: str) -> dict[str, str]:
    """Every page by its file name, in roff (man macros)."""
    program = {"rstore.1": _program(version)}
    return program | {f"rstore-{name}.1": _command(name, version) for name in COMMANDS}


def write(place: Path, version: str) -> list[tuple[str, list[str]]]:
    """Write pages and completions below `place`; what setup() takes as data_files: directories and files in them."""
    made: dict[str, list[str]] = {}
    texts = {f"share/man/man1/{name}": text for name, text in pages(version).items()}
    texts |= {f"share/{_PLACES[shell]}": text for shell, text in SCRIPTS.items()}
    for name, text in texts.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        made.setdefault(str(Path(name).parent), []).append(str(path))
    return sorted(made.items())


def _program(version: str) -> str:
    root = root_command()
    lines = [
        *_head("rstore", "recovery and operations for Apache RocketMQ message stores", version),
        ".SH SYNOPSIS",
        r".B rstore",
        r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        *_text(root.help),
        ".SH COMMANDS",
    ]  # fmt: skip
    for name, meaning in COMMANDS.items():
        lines += [".TP", rf".BR rstore\-{_plain(name)} (1)", *_text(meaning)]
    lines += [".SH OPTIONS", *_options(root, root.params)]
    lines += [".SH ENVIRONMENT", *_listed(_VARIABLES)]
    lines += [".SH EXIT STATUS", *_listed({str(code): meaning for code, meaning in EXITS.items()})]
    return "\n".join(lines) + "\n"


def _command(name: str, version: str) -> str:
    command = command_of(name)
    lines = [*_head(f"rstore-{name}", COMMANDS[name].rstrip("."), version), ".SH SYNOPSIS"]
    every = list(_leaves(name, command))
    for number, (words, one) in enumerate(every):
        lines += [*([".br"] if number else []), f".B rstore {_plain(words)}", _usage(one)]
    lines += [".SH DESCRIPTION", *_text(command.help)]
    if hasattr(command, "commands"):
        for words, one in every:
            lines += [f".SH {_plain(words.upper())}", *_text(one.help), *_parameters(one, ".SS")]
    else:
        lines += _parameters(command, ".SH")
    common = [param for param in command.params if param.name in _COMMON]
    lines += [".SH COMMON OPTIONS", *_options(command, common), ".SH EXIT STATUS"]
    lines += _listed({str(code): meaning for code, meaning in EXITS.items()})
    lines += [".SH SEE ALSO", r".BR rstore (1)"]
    return "\n".join(lines) + "\n"


def _leaves(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The commands of a group and of its groups, with their words; a command that is no group itself."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for word, one in inner.items():
        yield from _leaves(f"{words} {word}", one)


def _head(name: str, what: str, version: str) -> list[str]:
    title = f'.TH "{_plain(name.upper())}" "1" "" "rstore {_plain(version)}" "RocketMQ store tools"'
    return [title, ".SH NAME", rf"{_plain(name)} \- {_plain(what)}"]


def _usage(command: Any) -> str:
    words = [r"[\fIOPTIONS\fR]"]
    for param in command.params:
        if param.param_type_name == "argument":
            metavar = (param.metavar or param.name.upper()).strip("[]").replace("]...", " ...")
            metavar = rf"\fI{_plain(metavar)}\fR" + (" ..." if param.nargs == -1 and "..." not in metavar else "")
            words.append(metavar if param.required else f"[{metavar}]")
    return " ".join(words)


def _parameters(command: Any, section: str) -> Iterator[str]:
    """Arguments and options of its own."""
    arguments = {
        (param.metavar or param.name.upper()): param.help
        for param in command.params
        if param.param_type_name == "argument" and param.help
    }
    if arguments:
        yield f"{section} ARGUMENTS"
        yield from _listed(arguments)
    options = [param for param in command.params if param.param_type_name == "option" and param.name not in _COMMON]
    if options:
        yield f"{section} OPTIONS"
        yield from _options(command, options)


def _options(command: Any, params: list[Any]) -> Iterator[str]:
    context = typer.Context(command)
    for param in params:
        record = param.get_help_record(context)
        if record is not None:
            yield from _listed({record[0]: record[1]})


def _listed(entries: dict[str, str]) -> Iterator[str]:
    for name, meaning in entries.items():
        yield ".TP"
        yield rf"\fB{_plain(name)}\fR"
        yield from _text(meaning)


def _text(text: str | None) -> Iterator[str]:
    """Paragraphs, a line each; lines that roff would take for a request are none."""
    for number, paragraph in enumerate(inspect.cleandoc(text or "").split("\n\n")):
        if number:
            yield ".PP"
        line = _plain(" ".join(paragraph.split()))
        yield r"\&" + line if line.startswith((".", "'")) else line


def _plain(text: str) -> str:
    """Text that means itself in roff: backslashes, and hyphens that can be copied to a shell."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return "".join(letter if letter.isascii() else rf"\[u{ord(letter):04X}]" for letter in text)
