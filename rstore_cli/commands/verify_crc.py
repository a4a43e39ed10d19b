"""`rstore verify-crc`: every record of the log, one by one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from rstore_cli._common import FOUND, Jobs, Settings, parse_size, settings_of
from rstore_cli._spark import Conf, Master, SparkOptions, SplitBytes, UseSpark, on_spark, the_stores
from rstore_cli.render import BATCHES, Output, count, messages_in, say_not_read, size

if TYPE_CHECKING:
    from engine.inspect.check.verify import Bad, VerifyResult

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_SHOWN = 50
_NOTED = 5
"""Unusual records that are listed: notes must not push what is bad off the screen."""


@app.command("verify-crc")
def verify_crc(
    context: typer.Context,
    start: Annotated[
        str | None, typer.Option("--from", metavar="OFFSET", help="First physical offset (default: log start).")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="OFFSET", help="Stop before this physical offset.")] = None,
    jobs: Jobs = None,
    spark: UseSpark = False,
    master: Master = None,
    conf: Conf = None,
    split_bytes: SplitBytes = None,
) -> None:
    """Check every record of the log: CRC, lengths, offset, and header and properties.

    Header and properties are covered by a CRC only where RocketMQ 5 wrote a property CRC (enabledAppendPropCRC).

    Reads only, and continues after damage. Exit code 1 when a record is damaged or suspect. Unusual records are only
    listed: a client may have sent them so.
    """
    settings = settings_of(context)
    output = settings.output()
    first = None if start is None else parse_size(start, "--from")
    last = None if end is None else parse_size(end, "--to")
    given = SparkOptions.of(master, conf, split_bytes, used=spark, jobs=jobs)
    if spark:
        verified = _on_spark(settings, given, first, last)
    else:
        config = settings.load(numpy=True)

        from engine.files.disk import Disk
        from engine.inspect.check.verify import verify

        with output.progress("verify") as tick:
            verified = verify(Disk(), config, start=first, end=last, jobs=jobs, progress=tick)
    if output.json:
        output.document(verified.to_json())
    else:
        _show(output, verified, settings.named)
    if not verified.clean:
        raise typer.Exit(FOUND)


def _on_spark(settings: Settings, given: SparkOptions, start: int | None, end: int | None) -> VerifyResult:
    """The same, by executors."""
    from engine.inspect.check.verify import Bad, VerifyResult
    from engine.pipeline.jobs.verify import VerifyOptions, run
    from engine.pipeline.splits import SPLIT_BYTES

    stores = the_stores(settings, None)
    with on_spark(settings, given, "verify-crc") as spark:
        verified = run(spark, stores, VerifyOptions(start=start, end=end, split_bytes=given.split_or(SPLIT_BYTES)))
    (store_row,) = verified.table("stores").to_json()
    bad, suspect, unusual = (
        [
            Bad(row["physical_offset"], row["length"], row["file"], row["reason"])
            for row in verified.table(name).to_json()
        ]
        for name in ("damage", "suspect", "unusual")
    )
    return VerifyResult(
        store_row["records"],
        store_row["messages"],
        store_row["bytes"],
        bad,
        suspect,
        verified.facts["suspect_records"],
        unusual,
        verified.facts["unusual_records"],
        verified.facts["seconds"],
        store_row["start"],
        store_row["end"],
        store_row["running"],
        property_crcs=verified.facts["property_crc_records"],
        crc_mismatches=verified.facts["property_crc_mismatches"],
    )


def _show(output: Output, verified: VerifyResult, named: tuple[str, ...]) -> None:
    rate = f", {size(int(verified.size / verified.seconds))}/s" if verified.seconds >= 0.1 else ""
    output.text(
        f"{messages_in(verified.messages, verified.records, 'sound record')}, {size(verified.size)}, "
        f"offsets {verified.start} to {verified.end}, in {verified.seconds:.1f} s{rate}"
    )
    if verified.property_crcs:
        matching = verified.property_crcs - verified.crc_mismatches
        output.text(f"{count(verified.property_crcs, 'record')} with a property CRC: it matches in {matching:,}")
    if verified.batches:
        output.text(BATCHES)
    if verified.live:
        output.text("The store is locked by a running process: the log was checked up to its current end.")
    say_not_read(output, named, verified.not_read)
    if verified.unusuals:
        many = count(verified.unusuals, "unusual record")
        title = f"{many} (a client sent them so, or they were changed later: rstore can't tell; not an error):"
        _places(output, title, verified.unusual[:_NOTED], verified.unusuals)
    if not verified.bad and not verified.suspects:
        output.text("No damage." if verified.clean else "No damage in the part that was read.")
        return
    if verified.bad:
        _places(output, f"{count(len(verified.bad), 'damaged place')}:", verified.bad, len(verified.bad))
    if verified.suspects:
        many = count(verified.suspects, "suspect record")
        _places(
            output, f"{many} (body sound, header or properties not; readable):", verified.suspect, verified.suspects
        )
        output.text(
            "Keep queues and index: they may be the only evidence of what suspect records contained; reindex "
            "replaces them."
        )
    from engine.config import StoreConfig
    from engine.inspect.next_step import read

    output.text(f"Next: {read(StoreConfig(typed=named))}")


def _places(output: Output, title: str, places: list[Bad], total: int) -> None:
    output.text(title)
    output.text()
    output.table(
        ["offset", "bytes", "file", "what"],
        [[str(b.offset), str(b.length), os.path.basename(b.path), b.reason] for b in places[:_SHOWN]],
        numbers=(0, 1),
        whole=(2,),
    )
    if total > min(len(places), _SHOWN):
        output.text(f"… and {total - min(len(places), _SHOWN)} more (--json lists more)")
    output.text()
