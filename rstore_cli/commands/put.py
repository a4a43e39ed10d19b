"""`rstore put`: one message, or many. The store is locked, opened as a broker would, and closed cleanly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from engine.format.quantities import counted
from rstore_cli._common import Settings, settings_of
from rstore_cli.given_messages import body_of, properties_of
from rstore_cli.interrupt import Interrupts
from rstore_cli.render import Output, printable, size

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.format.message import Message
    from engine.put_run import PutAnswer, PutRun

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def put(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Optional with --jsonl: each line names its topic.")
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option("--queue", min=0, metavar="N", help="Queue id (default: 0; with --jsonl that of the line)."),
    ] = None,
    body: Annotated[str | None, typer.Option("--body", metavar="TEXT", help="The body as text.")] = None,
    body_file: Annotated[Path | None, typer.Option("--body-file", metavar="FILE", help="File with the body.")] = None,
    tags: Annotated[str | None, typer.Option("--tags", metavar="TAG", help="Tag (TAGS).")] = None,
    keys: Annotated[
        str | None, typer.Option("--keys", metavar="KEYS", help="Keys (KEYS), separated by blanks.")
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property (repeatable).")
    ] = None,
    delay_level: Annotated[
        int | None, typer.Option("--delay-level", min=1, metavar="N", help="Delay level, as in messageDelayLevel.")
    ] = None,
    sync: Annotated[bool, typer.Option("--sync", help="Flush each message to disk before the next.")] = False,
    jsonl: Annotated[
        str | None,
        typer.Option("--jsonl", metavar="FILE", help="Read messages from JSON lines, as get prints them; - is stdin."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Put N equal messages, for load tests.")
    ] = None,
    body_size: Annotated[
        str | None, typer.Option("--size", metavar="BYTES", help="Body size with --count (default: 1K).")
    ] = None,
) -> None:
    """Put one message or many.

    Locks the store. Refused (exit code 4) after a crash: run rstore recover first.
    """
    settings = settings_of(context)
    if sum(value is not None for value in (body, body_file, jsonl)) + (body_size is not None) > 1:
        raise InvalidArgument("--body, --body-file, --size and --jsonl exclude each other")
    if jsonl is not None and (count, tags, keys, properties, delay_level) != (None,) * 5:
        raise InvalidArgument(
            "with --jsonl each line has its own tags, keys and properties", hint="leave out the others"
        )
    if topic is None and jsonl is None:
        raise InvalidArgument("TOPIC is required", hint="rstore put TOPIC --body TEXT")
    if topic is not None:
        _check_topic(topic)
    if body_size is not None and count is None:
        raise InvalidArgument("--size requires --count")
    from engine.config import FlushDiskType, delay_levels

    config = settings.load()
    if delay_level is not None:
        delay_levels(config)
    if sync:
        config = config.with_changes(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    if jsonl is not None:
        _put_lines(settings, config, jsonl, topic, queue)
        return
    assert topic is not None
    payload = body_of(body, body_file, None if count is None else body_size or "1K") or b""
    message = _message(topic, queue or 0, payload, _named(tags, keys, properties, delay_level), config)
    output = settings.output()
    if count is None:
        with _opened(settings, config, topic) as run:
            (answer,) = run.each([message])
        _show(output, answer)  # the store is closed, so it is on disk
        return
    with _opened(settings, config, topic) as run, output.progress("put", is_bytes=False) as tick:
        run.alike(message, count, one_by_one=sync, progress=tick)
    _summary(output, run)


def _put_lines(settings: Settings, config: StoreConfig, name: str, topic: str | None, queue: int | None) -> None:
    """With --json an answer each, as it comes; else a summary."""
    from engine.put_run import store_host
    from rstore_cli.put_lines import open_lines, parsed

    output = settings.output()
    with ExitStack() as stack:
        messages = parsed(open_lines(stack, name), name, topic, queue, store_host(config))
        run = stack.enter_context(_opened(settings, config, topic))
        for answer in run.blocks(messages, answers=output.json):
            output.line(answer.to_json())
    if not output.json:
        _summary(output, run)


@contextmanager
def _opened(settings: Settings, config: StoreConfig, topic: str | None) -> Iterator[PutRun]:
    """The store, open. An interruption waits for the put that is under way, and says then what is kept."""
    from engine.files.disk import Disk
    from engine.put_run import put_run

    output = settings.output()

    def on_put(messages: int) -> None:
        put = counted(messages, "message was put and is", "messages were put and are")
        settings.on_interrupt = f"{put} kept; the store was closed cleanly"

    with (
        Interrupts() as interrupts,
        put_run(
            Disk(),
            config,
            topic=topic,
            note=lambda text: output.note(f"note: {text}"),
            held=interrupts.held,
            on_put=on_put,
        ) as run,
    ):
        yield run


def _show(output: Output, answer: PutAnswer) -> None:
    if output.json:
        output.document(answer.to_json())
        return
    output.text(
        f"PUT_OK  {printable(answer.topic)}/{answer.queue_id} at {answer.queue_offset}  "
        f"log {answer.physical_offset}  id {answer.msg_id}"
    )


def _summary(output: Output, run: PutRun) -> None:
    if output.json:
        output.document(run.to_json())
        return
    seconds = run.seconds
    output.text(
        f"{counted(run.messages, 'message')}, {size(run.size)}, in {seconds:.1f} s: "
        f"{run.messages / seconds:,.0f} a second, {size(int(run.size / seconds))}/s"
    )


# --- what is put -----------------------------------------------------------------------------------------------------


def _check_topic(topic: str) -> None:
    """Refuses what Apache's client refuses to send to. Source: Validators#checkMessage. Raises InvalidArgument."""
    from engine.format.topic_rules import no_sends, refused_by_client

    wrong = refused_by_client(topic) or no_sends(topic)
    if wrong is not None:
        raise InvalidArgument(printable(wrong.rstrip(".")), hint="Apache's client refuses it, too")


def _named(tags: str | None, keys: str | None, given: list[str] | None, delay_level: int | None) -> dict[str, str]:
    from engine.format import properties as names
    from rstore_cli.messages import checked_properties

    named = properties_of(given)
    if keys is not None:
        named[names.KEYS] = keys
    if tags is not None:
        named[names.TAGS] = tags
    if delay_level is not None:
        named[names.DELAY] = str(delay_level)
    return checked_properties(named)


def _message(topic: str, queue_id: int, body: bytes, named: dict[str, str], config: StoreConfig) -> Message:
    from dataclasses import replace

    from engine.format.message import Message
    from engine.put_run import store_host

    address = store_host(config)
    now = time.time_ns() // 1_000_000
    return Message(
        topic=topic,
        body=body,
        queue_id=queue_id,
        properties=named,
        born_timestamp=now,
        born_host=replace(address, port=0),
        store_host=address,
    )
