"""`rstore`: finds the command, runs it, and turns whatever goes wrong into one line and an exit code.

A command's module is imported when it is run, and what it needs of the engine when it does its work: `rstore --help`
answers at once.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import os
import sys
import threading
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from engine.errors import RStoreError
from rstore_cli._common import ENVIRONMENT, INTERRUPTED, OK, PIPE_CLOSED, USAGE, Settings, declared_options, settings_of
from rstore_cli.error_text import error_lines
from rstore_cli.screen import fold_text, paint, takes_colour, width

COMMANDS = {
    "init": "Create an empty store.",
    "put": "Put one message or many.",
    "get": "Show messages of a queue, or one by message id or physical offset.",
    "query": "Find messages by key, through the index.",
    "recover": "Recover a store after a crash.",
    "salvage": "List, export, replay or prune what repairs saved; scan past damage.",
    "undo": "Undo the last repair, byte for byte.",
    "plan-start": "Show what a broker would do to the store at its start.",
    "truncate": "Cut log, queues and index at one offset.",
    "reindex": "Rebuild consume queues and index from the log.",
    "expire": "Delete the oldest files: one round of retention.",
    "rebuild-config": "Rebuild missing or broken configuration tables.",
    "config": "List the config history that serve keeps, or restore a state.",
    "offsets": "List consumer offsets, or set one.",
    "dump": "Show every field of log, queues, index, checkpoint, timer, epochs or config.",
    "verify-crc": "Check every record of the log: CRC, lengths, offset.",
    "check": "Check log, queues, index and config against each other.",
    "doctor": "Show why a broker does not start on this store.",
    "status": "Show the state of the store: offsets, space, lag, anomalies.",
    "flush": "Flush log, queues, checkpoint and offsets to disk.",
    "serve": "Serve the store to RocketMQ clients.",
    "replicate": "Copy a running broker's store and keep the copy up to date.",
    "rewind": "Make an old master's store a slave's: cut it where the logs diverged.",
    "promote": "Make a stopped slave's store one that a master starts on.",
    "send": "Send messages to a running cluster.",
    "consume": "Show messages of a running cluster, with a group or without.",
    "tail": "Show new messages of a cluster or store as they come.",
    "trace": "Show what became of a message, in a cluster or store.",
    "admin": "Administer a running cluster: topics, groups, offsets, brokers.",
    "copy": "Copy topics and consumer offsets from one running cluster to another.",
    "backup": "Back up stores into a repository: a directory or object storage.",
    "seal": "Seal complete segments: hashes that show each byte that changes.",
    "scrub": "Read the log again and compare it with its seals.",
    "heal": "Fill in damaged parts of the log from backups, other stores or brokers.",
    "restore": "Restore a store from a backup, whole or up to a moment.",
    "report": "Write a report of a store in one file, for a ticket.",
    "console": "Show a store or a cluster in a browser.",
    "top": "Watch a broker: topics, rates, lag, disk.",
    "drill": "Rehearse failures on scratch stores.",
    "pipeline": "Run Spark jobs over one or many stores.",
    "bench": "Benchmark rstore against Apache's store on this machine.",
    "completion": "Print the completion script for bash, zsh or fish.",
}
"""Every command and what it does."""

COLLECT = (100_000, 20, 20)
"""When Python looks for garbage in circles: a command makes little, its imports alone set off hundreds of rounds."""

_PARSER_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""What the option parser raises; typer has no public name for it."""

_VARIABLE = "_RSTORE_COMPLETE"
_HELP_NAMES: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
_HELP = """Recovery and operations for Apache RocketMQ 4.9 message stores.

Reading never writes. A change shows its plan first and asks. Options may stand before or after the command."""


class Commands(TyperGroup):
    """The commands, each imported when it is asked for.

    `summaries`: every command and what it does, known without an import.
    """

    summaries = COMMANDS

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Their names, in the order of the documentation."""
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """The command, with the options that every command has. Raises the parser's usage error."""
        if cmd_name not in COMMANDS:
            close = get_close_matches(cmd_name, COMMANDS, 1)
            ctx.fail(f"No such command {cmd_name!r}" + (f"; did you mean {close[0]}?" if close else ""))
        return command_of(cmd_name)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """The list in the help, without importing a single one."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@functools.cache
def command_of(name: str) -> Any:
    """A command of COMMANDS, as the parser has it.

    Made once a process: reading its parameters takes longer than some commands do.
    """
    module = importlib.import_module("rstore_cli.commands." + name.replace("-", "_"))
    command = typer.main.get_command(module.app)
    _add_common(command)
    return command


# --- the options that every command has ------------------------------------------------------------------------------


def _take_store(ctx: typer.Context, value: Path | None) -> None:
    if value is not None:
        settings = settings_of(ctx)
        from_environment = _from_environment(ctx, "store")
        if settings.store is None or not from_environment:
            settings.store = value
        settings.typed_store |= not from_environment


def _take_config(ctx: typer.Context, value: Path | None) -> None:
    if value is not None:
        settings = settings_of(ctx)
        from_environment = _from_environment(ctx, "config")
        if settings.config is None or not from_environment:
            settings.config = value
        settings.typed_store |= not from_environment


def _from_environment(ctx: typer.Context, name: str) -> bool:
    """Whether an option's value is the environment's: what was typed before the command's name is stronger."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "ENVIRONMENT"


def _take_json(ctx: typer.Context, value: bool) -> None:
    settings_of(ctx).json |= value


def _take_quiet(ctx: typer.Context, value: bool) -> None:
    settings_of(ctx).quiet |= value


def _take_follow_links(ctx: typer.Context, value: bool) -> None:
    settings_of(ctx).follow_links |= value


def _show_version(value: bool) -> None:
    if value:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"rstore {version('rstore')}")
        except PackageNotFoundError:
            print("rstore (not installed)")
        raise typer.Exit(OK)


StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        readable=False,
        metavar="DIR",
        envvar="RSTORE_STORE",
        show_envvar=True,
        expose_value=False,
        callback=_take_store,
        help="The store's directory (default: $HOME/store).",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        readable=False,
        metavar="FILE",
        envvar="RSTORE_CONF",
        show_envvar=True,
        expose_value=False,
        callback=_take_config,
        help="The broker's properties file (broker.conf).",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", expose_value=False, callback=_take_json, help="Print JSON on stdout.")
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", expose_value=False, callback=_take_quiet, help="Print no notes and no progress."),
]
FollowLinksOption = Annotated[
    bool,
    typer.Option(
        "--follow-links",
        expose_value=False,
        callback=_take_follow_links,
        help="Allow changes through links in the store, and of files that have other hard links.",
    ),
]


def _common(
    store: StoreOption = None,
    config: ConfigOption = None,
    follow_links: FollowLinksOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    pass


def _add_common(command: Any) -> None:
    """Give a command (and its own commands) the common options."""
    command.params.extend(declared_options(_common))
    for inner in getattr(command, "commands", {}).values():
        _add_common(inner)


app = typer.Typer(cls=Commands, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(help=_HELP)
def _root(
    store: StoreOption = None,
    config: ConfigOption = None,
    follow_links: FollowLinksOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    del version


# --- running ---------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    if _VARIABLE in os.environ:
        return _complete(args)
    gc.set_threshold(*COLLECT)
    for stream in (sys.stdout, sys.stderr):  # a name that is no text must not end a repair
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    settings = Settings(words=tuple(args))
    try:
        code = _run(args, settings)
        sys.stdout.flush()
    except BrokenPipeError:
        _close_quietly()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return _report(settings, "interrupted", f"interrupted: {settings.on_interrupt}", INTERRUPTED)
    except RStoreError as error:
        if _debug():
            raise
        return _report(settings, error.code, str(error), error.exit_code, error)
    except ModuleNotFoundError as error:
        package = _not_installed(error)
        if package is None or _debug():
            raise
        return _report(
            settings, "not-installed", f"{package} is not installed", ENVIRONMENT, hint=f"pip install {package}"
        )
    except _PARSER_ERROR as error:
        return _usage(args, settings, error)
    except Exception as error:
        if _debug():
            raise
        reason = " ".join(str(error).split())
        text = f"{type(error).__name__}: {reason} (a bug in rstore: RSTORE_DEBUG=1 shows the traceback)"
        if isinstance(error, OSError):
            text = f"{(error.strerror or reason).lower()}{f': {error.filename}' if error.filename else ''}"
        return _report(settings, "io" if isinstance(error, OSError) else "internal", text, ENVIRONMENT)
    return code


def _complete(words: list[str]) -> int:
    """Answer a shell; whatever goes wrong is no matter of who only types."""
    from rstore_cli.completion import answer

    with contextlib.suppress(Exception):
        answer(words, root_command())
        sys.stdout.flush()
    return OK


@functools.cache
def root_command() -> Any:
    """The program itself, as the parser has it: its options, and the commands."""
    return typer.main.get_command(app)


def _run(args: list[str], settings: Settings) -> int:
    group = root_command()
    try:
        with group.make_context("rstore", list(args) or ["--help"], obj=settings, **_HELP_NAMES) as context:
            group.invoke(context)
    except typer.Exit as ending:
        return ending.exit_code if args else USAGE
    return OK


def _usage(args: list[str], settings: Settings, error: Exception) -> int:
    settings.json |= "--json" in args
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "rstore"
    message = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
    return _report(settings, "usage", message, USAGE, hint=f"see {where} --help")


def _safe(line: str) -> str:
    """In one line, without what a terminal would act on: brokers' words, and names that users typed, are in it."""
    from rstore_cli.render import printable

    return printable(" ".join(line.split("\n")))


def _report(
    settings: Settings,
    code: str,
    line: str,
    exit_code: int,
    error: RStoreError | None = None,
    *,
    hint: str | None = None,
) -> int:
    """One line on stderr, of a refusal with the next command in another; with --json an object on stdout, too."""
    from engine.inspect.next_step import for_store

    try:
        _end_stdout(settings, code, line, error, hint)
        lines = [line if hint is None else f"{line} ({hint})"]
        if error is not None:
            lines = error_lines(error, root=settings.root, planned=settings.refused_plan is not None)
        lines[0] = f"rstore: {lines[0]}"
        room = width(sys.stderr)
        text = "\n".join(part for one in lines for part in fold_text(for_store(settings.named, _safe(one)), room))
        if takes_colour(sys.stderr):
            text = text.replace("rstore:", paint("rstore:", "red"), 1)
        print(text, file=sys.stderr)
    except BrokenPipeError:
        _close_quietly()
    return exit_code


def _end_stdout(settings: Settings, code: str, line: str, error: RStoreError | None, hint: str | None) -> None:
    """What is left for it, and with --json the error; where there is no space for that, stderr alone says so."""
    from engine.inspect.next_step import for_store

    try:
        if settings.json:
            known: dict[str, Any] = {
                "code": code,
                "message": for_store(settings.named, line) if error is None else error.message,
                "path": None if error is None else error.path,
                "offset": None if error is None else error.offset,
                "hint": hint if error is None else error.hint and for_store(settings.named, error.hint),
            }
            if error is not None and error.next is not None:
                known["next"] = error.next.to_json()
            print(json.dumps({**(settings.refused_plan or {}), "error": known}))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        _close_quietly()


def _close_quietly() -> None:
    """Stdout takes no more: what is left to write goes nowhere, and Python's own flush at the end can't complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _not_installed(error: ModuleNotFoundError) -> str | None:
    """The package that is missing, as pip calls it; None for a module of ours."""
    module = (error.name or "").partition(".")[0]
    named = {"pythonjsonlogger": "python-json-logger", "ruamel": "ruamel.yaml"}
    return None if module in ("", "engine", "rstore_cli") else named.get(module, module)


def _debug() -> bool:
    return os.environ.get("RSTORE_DEBUG", "") not in ("", "0")


def _write_whole() -> None:
    """Stdout with PYTHONUNBUFFERED writes once and drops what a signal or a full disk left over; a buffer does not."""
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding=sys.stdout.encoding, errors=sys.stdout.errors, line_buffering=True
        )


def run() -> NoReturn:
    """`main`, and the end at once: giving every object back takes a quarter of a second after a recovery."""
    _write_whole()
    code = main()
    try:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    except KeyboardInterrupt:
        code = INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
