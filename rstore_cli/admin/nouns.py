"""The commands of a noun of `rstore admin`, and the options that they have by that alone.

Each has --namesrv and --tls-ca, each that changes something --dry-run and --yes, too. Their functions don't declare
these: `ask` and `change` read them from the context.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from rstore_cli._common import declared_options
from rstore_cli.cluster import NameServers, TlsCa

Function = TypeVar("Function", bound=Callable[..., Any])

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Show the plan and change nothing: exit code 0 if nothing would change, else 1."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]


def _where(namesrv: NameServers = None) -> None:
    pass


def _asked(tls_ca: TlsCa = None) -> None:
    pass


def _changed(dry_run: DryRun = False, yes: Yes = False, tls_ca: TlsCa = None) -> None:
    pass


_declared = functools.cache(declared_options)


class AskingCommand(TyperCommand):
    """A command that asks a cluster. See the module."""

    given: Callable[..., None] = staticmethod(_asked)
    """Declares the options that stand after the command's own."""

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **more: Any) -> None:
        own = params or []
        head = next(
            (at for at, one in enumerate(own) if one.param_type_name == "option" and not one.required), len(own)
        )
        first, last = _declared(_where), _declared(self.given)
        self._own = frozenset(one.name for one in own)
        super().__init__(name, params=[*own[:head], *first, *own[head:], *last], **more)

    def invoke(self, ctx: Any) -> Any:
        """Call the function with what it declares."""
        assert self.callback is not None
        return ctx.invoke(self.callback, **{name: value for name, value in ctx.params.items() if name in self._own})


class ChangingCommand(AskingCommand):
    """A command that changes a cluster, by a plan. See the module."""

    given = staticmethod(_changed)


class Noun(typer.Typer):
    """The commands of a noun. `text`: what they are about."""

    def __init__(self, text: str) -> None:
        super().__init__(add_completion=False, rich_markup_mode=None, no_args_is_help=False, help=text)

    def asks(self, name: str | None = None) -> Callable[[Function], Function]:
        """A function becomes a command that asks."""
        return self.command(name, cls=AskingCommand)

    def changes(self, name: str | None = None) -> Callable[[Function], Function]:
        """A function becomes a command that changes something."""
        return self.command(name, cls=ChangingCommand)
