"""`rstore replicate`: a verified copy of a running broker's store."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import parse_size, settings_of
from rstore_cli.remote_broker import Acl, HaPort, HaTls, TlsCa, TlsCert, TlsKey, signer_of, tls_of
from rstore_cli.render import Output, size
from rstore_cli.screen import is_terminal

if TYPE_CHECKING:
    from engine.broker.ha.replicate import Replicated, Tell

_EVERY_S = 10.0
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def replicate(
    context: typer.Context,
    source: Annotated[
        str, typer.Option("--from", metavar="HOST:PORT", help="Address of the broker (its port is 10911 by default).")
    ],
    ha_port: HaPort = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Exit when the copy has reached the broker's log end.")
    ] = False,
    throttle: Annotated[
        str | None, typer.Option("--throttle", metavar="SIZE", help="Maximum bytes a second, like 20M.")
    ] = None,
    compare: Annotated[
        str, typer.Option("--compare", metavar="SIZE", help="Bytes at the end of the copy to compare first, or all.")
    ] = "1M",
    last_file: Annotated[
        bool, typer.Option("--last-file", help="Start an empty copy at the broker's last segment, as a slave does.")
    ] = False,
    no_tables: Annotated[bool, typer.Option("--no-tables", help="Don't copy topics, groups and offsets.")] = False,
    acl: Acl = None,
    ha_tls: HaTls = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Copy the store of a running broker, Apache's or rstore's, into --store and follow it until Ctrl-C.

    Every record is checked on arrival. The next run resumes after comparing the end of the copy. A copy that has
    diverged from its broker is refused (exit code 4) with the first offset that differs. Apache's broker and rstore
    open the copy.
    """
    settings = settings_of(context)

    from engine.broker.ha.replicate import ReplicateOptions
    from engine.broker.ha.replicate import replicate as run

    config = settings.load()
    rate = None if throttle is None else parse_size(throttle, "--throttle")
    if rate == 0:
        raise InvalidArgument("--throttle must be at least 1")
    wanted = ReplicateOptions(
        source,
        ha_port,
        until_caught_up,
        rate,
        None if compare == "all" else parse_size(compare, "--compare"),
        last_file,
        not no_tables,
        tls_of(config.other, ha_tls, tls_ca, tls_cert, tls_key),
        signer_of(acl),
    )
    answer = settings.output()
    settings.on_interrupt = "the copied part is kept: run the same command again to resume"
    with _screen(answer) as tell:
        replicated = run(config, wanted, tell)
    if answer.json:
        answer.document(replicated.to_json())
        return
    answer.facts(
        [
            ("log", f"{replicated.start} to {replicated.end}"),
            ("copied", f"{size(replicated.appended)} in {replicated.seconds:.1f} s"),
            ("compared", size(replicated.compared)),
            ("verified up to", str(replicated.dispatched)),
            ("tables", ", ".join(replicated.tables) or "none"),
        ]
    )


@contextlib.contextmanager
def _screen(answer: Output) -> Iterator[Tell]:
    """Lag and rate, on stderr: a bar where somebody looks, a line now and then where nobody does."""
    shown = 0.0
    with answer.progress("copying") as tick:

        def tell(now: Replicated) -> None:
            nonlocal shown
            tick(now.end - now.start, max(now.master_end, now.end) - now.start)
            if not is_terminal(sys.stderr) and time.monotonic() - shown >= _EVERY_S:
                shown = time.monotonic()
                rate = size(int(now.appended / now.seconds)) if now.seconds else "-"
                answer.note(f"{now.status.value}: lag {size(now.lag)}, {rate}/s, log up to {now.end}")

        yield tell
