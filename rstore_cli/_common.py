"""What the commands share: exit codes, the options that every command has, sizes and times as people write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.dataclass import dataclass
from engine.format.quantities import parse_duration, parse_size, parse_time
from rstore_cli.compiling import tell_of_compiling

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from rstore_cli.render import Output

OK = 0
FOUND = 1
"""Done, but there are problems; or a dry run that would change something."""
USAGE = 2
LOCKED = 3
REFUSED = 4
ENVIRONMENT = 5
INTERRUPTED = 130
PIPE_CLOSED = 141
"""Whoever read our output went away: as if SIGPIPE had ended us."""

Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, metavar="N", help="Threads that read the log (default: all cores).")
]

__all__ = ["Jobs", "Settings", "parse_duration", "parse_size", "parse_time", "settings_of"]

_ONLY_LOOKS = frozenset({"--dry-run", "--json", "--quiet", "-q"})


@dataclass(slots=True)
class Settings:
    """The options that every command has, before or after its name.

    Attributes:
        store: --store, or RSTORE_STORE.
        config: -c / --config, or RSTORE_CONF.
        typed_store: whether one of the two was typed, and isn't the environment's.
        json: JSON on stdout.
        quiet: no notes, no progress.
        follow_links: changes are made through links in the store, too.
        on_interrupt: what to say when Ctrl-C ends the command now.
        refused_plan: the plan of a change that was refused, for the error's JSON.
        words: the command line as it was typed, without the program's name.
        root: the store's directory, once the settings are loaded.
    """

    store: Path | None = None
    config: Path | None = None
    typed_store: bool = False
    json: bool = False
    quiet: bool = False
    follow_links: bool = False
    on_interrupt: str = "nothing was changed"
    refused_plan: dict[str, Any] | None = None
    words: tuple[str, ...] = ()
    root: str | None = None

    def output(self) -> Output:
        """Where the command's answer goes."""
        from rstore_cli.render import Output

        return Output(json=self.json, quiet=self.quiet, typed=self.named)

    def load(self, *, numpy: bool = False) -> StoreConfig:
        """The store's settings: rstore.conf in the store, over it the file of -c, over it --store.

        A note on stderr says that a broker does not go by each line of the file as it stands. `numpy`: the command
        needs it, and has it afterwards.

        Raises:
            InvalidArgument, StorageError: a file that can't be read, or a value that makes no sense.
        """
        from dataclasses import replace

        from engine.config import of_store
        from rstore_cli.access import demand_access

        if self.store is not None:
            demand_access(self.store, self.words)
        config = replace(of_store(self.store, self.config), typed=self.named, follow_links=self.follow_links)
        self.root = str(config.store_path_root_dir)
        self._note_misread()
        self._note_not_sizes(config)
        if numpy:
            from rstore_cli._numpy import load_numpy

            load_numpy()
        return config

    @property
    def named(self) -> tuple[str, ...]:
        """The arguments that name the store: a command that is told with them can be copied and run."""
        store = () if self.store is None else ("--store", str(self.store))
        store = (*store, "--follow-links") if self.follow_links else store
        return store if self.config is None else (*store, "-c", str(self.config))

    def again(self) -> str:
        """The command line without what only looks, as a shell takes it."""
        import shlex

        return shlex.join(["rstore", *(word for word in self.words if word not in _ONLY_LOOKS)])

    def _note_not_sizes(self, config: StoreConfig) -> None:
        if config.not_sizes and not self.quiet:
            from engine.config import STORE_CONF
            from rstore_cli.render import printable, say

            keys = ", ".join(map(printable, config.not_sizes[:6]))
            say(f"note: {config.store_path_root_dir / STORE_CONF} gives sizes alone; these keys have no effect: {keys}")

    def _note_misread(self) -> None:
        if self.config is None or self.quiet:
            return
        import shlex

        from engine.broker_conf.not_keys import is_of_the_jvm
        from engine.broker_conf.report import Judgement, read_conf
        from rstore_cli.render import printable, say

        report = read_conf(self.config.read_bytes())
        command = shlex.join(["rstore", "doctor", "--conf", str(self.config)])
        stops = [danger for danger in report.dangers if danger.stops]
        for danger in stops:
            say(f"note: a broker does not start with {self.config}: {danger.what}: {command}")
        stopping_keys = {key for danger in stops for key in danger.keys}
        as_meant = (Judgement.IN_FORCE, Judgement.NEWER)  # which broker has the file, its store tells: doctor
        odd = [
            v
            for v in report.verdicts
            if v.key not in stopping_keys and v.judgement not in as_meant and not is_of_the_jvm(v.key)
        ]
        if odd:
            keys = list(dict.fromkeys(printable(verdict.name) for verdict in odd))
            some = ", ".join(keys[:6]) + (f" and {len(keys) - 6} more" if len(keys) > 6 else "")
            say(f"note: a broker ignores or misreads these settings of {self.config}: {some}: {command}")


def declared_options(function: Callable[..., None]) -> list[Any]:
    """The parser's own objects of the parameters that a function declares: options that many commands have.

    They are made here, and given to commands whose functions don't declare them.
    """
    probe = typer.Typer(add_completion=False)
    probe.command()(function)
    return list(typer.main.get_command(probe).params)


def settings_of(context: typer.Context) -> Settings:
    """The settings of this run, which begins now."""
    settings = context.find_root().obj
    assert isinstance(settings, Settings)
    tell_of_compiling(quiet=settings.quiet or settings.json)
    return settings
