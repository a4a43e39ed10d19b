"""`rstore completion`: what a shell needs to complete the command line."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from rstore_cli._common import settings_of

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Shell(enum.StrEnum):
    """A shell that SHELL can name."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]
) -> None:
    """Print the completion script of a shell: it completes commands, options, and topics, groups, queues and repairs of
    the store.

    bash: eval "$(rstore completion bash)" in ~/.bashrc. zsh: source <(rstore completion zsh) in ~/.zshrc, after
    compinit. fish: rstore completion fish > ~/.config/fish/completions/rstore.fish. Names are read from the store of
    --store, -c, RSTORE_STORE or RSTORE_CONF on the line.
    """
    from rstore_cli.completion_scripts import SCRIPTS

    output = settings_of(context).output()
    if output.json:
        output.document({"shell": shell.value, "script": SCRIPTS[shell.value]})
    else:
        output.raw(SCRIPTS[shell.value].rstrip("\n"))
