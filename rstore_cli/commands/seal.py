"""`rstore seal`: hash trees of the complete segments, so that scrub finds each byte that changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from engine.format.quantities import moment
from rstore_cli._common import FOUND, OK, parse_size, settings_of
from rstore_cli.render import count, size

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.seals.sealing import Sealed, SealRow
    from rstore_cli.render import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)
Seals = Annotated[
    Path | None,
    typer.Option("--seals", metavar="DIR", help="Directory of the seals (default: seals/ in the store)."),
]
_SHOWN = 50


@app.command()
def seal(
    context: typer.Context,
    seals: Seals = None,
    list_: Annotated[bool, typer.Option("--list", help="List segments and their seals; seal nothing.")] = False,
    renew: Annotated[
        bool,
        typer.Option("--renew", help="Also seal again what was written after it was sealed, or has a damaged seal."),
    ] = False,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="SIZE", help="Limit of bytes read a second, such as 50M.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, metavar="N", help="Segments read at a time.")] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sealed and write nothing (exit code 1).")
    ] = False,
) -> None:
    """Seal the complete segments of the log: hashes by which rstore scrub finds each byte that changes.

    A broker may be running on the store: complete segments are not written any more, and its lock is not taken. Sealed
    segments are not read again. Exit code 1 when a segment has damage, which its seal notes, or could not be sealed.
    """
    settings = settings_of(context)
    output = settings.output()
    if list_ and (renew or dry_run or rate is not None):
        raise InvalidArgument("--list excludes --renew, --rate and --dry-run")
    pace = parse_rate(rate)
    config = settings.load()
    directory = None if seals is None else str(seals.absolute())
    if list_:
        raise typer.Exit(_list(output, config, directory))
    settings.on_interrupt = "segments that were sealed stay so; run it again for the rest"

    from engine.seals.sealing import SealOptions, seal_store

    options = SealOptions(directory, jobs, pace, renew, dry_run)
    with output.progress("sealing") as tick:
        result = seal_store(disk_of(config, directory), config, options, tick)
    if output.json:
        output.document(result.to_json())
    else:
        _show(output, result)
    raise typer.Exit(FOUND if not result.clean or (dry_run and (result.made or result.removed)) else OK)


def parse_rate(text: str | None, option: str = "--rate") -> int | None:
    """Bytes a second, or None. Raises InvalidArgument."""
    rate = None if text is None else parse_size(text, option)
    if rate == 0:
        raise InvalidArgument(f"{option} must be more than 0")
    return rate


def disk_of(config: StoreConfig, directory: str | None) -> Disk:
    """What writes seals, and nothing else."""
    from engine.files.disk import Disk
    from engine.repair.reach import building
    from engine.seals.directory import seals_directory

    return building(Disk(), config, directory or seals_directory(str(config.store_path_root_dir)))


def _list(output: Output, config: StoreConfig, directory: str | None) -> int:
    from engine.files.disk import Disk
    from engine.inspect.store.survey import survey
    from engine.seals.sealing import SealState, list_seals

    disk = Disk()
    rows = list_seals(disk, survey(disk, config), directory)
    if output.json:
        for row in rows:
            output.line(row.to_json())
    elif rows:
        output.table(
            ("segment", "bytes", "state", "sealed", "by", "damage"), list(map(_cells, rows)), numbers=(0, 1, 5)
        )
    else:
        output.text("No complete segments.")
    return OK if all(row.state is SealState.SEALED for row in rows) else FOUND


def _cells(row: SealRow) -> list[str]:
    made = row.seal
    told = row.to_json()
    return [
        str(row.offset),
        str(told["bytes"]),
        row.state.value,
        "" if made is None else moment(made.sealed_ms),
        "" if made is None else made.by,
        str(told["damage"]) if told["damage"] else "",
    ]


def _show(output: Output, result: Sealed) -> None:
    if result.dry_run:
        total = size(sum(row.segment.size for row in result.made if row.segment is not None))
        output.text(f"{count(len(result.made), 'segment')} to seal, {total}; {result.kept} sealed already")
    else:
        rate = f", {size(int(result.read / result.seconds))}/s" if result.seconds >= 0.1 else ""
        output.text(
            f"{count(len(result.made), 'segment')} sealed, {result.kept + len(result.refreshed)} sealed already; "
            f"{size(result.read)} read in {result.seconds:.1f} s{rate}"
        )
        output.text(f"Seals: {result.directory}")
    if result.removed:
        verb = "would be removed" if result.dry_run else "removed"
        output.text(f"{count(len(result.removed), 'seal')} of segments that are deleted, or written again, {verb}.")
    for row in result.made[:_SHOWN]:
        if row.seal is not None and row.seal.damage:
            output.warn(
                f"segment {row.offset} has {count(len(row.seal.damage), 'damaged or suspect range')}, which its seal "
                "notes: rstore verify-crc lists them"
            )
    for row in result.open[:_SHOWN]:
        what = row.problem or "it was written after it was sealed"
        output.warn(
            f"segment {row.offset} is not sealed again: {what}: rstore scrub --once shows what changed; --renew "
            "seals it"
        )
    for offset, error in result.failed[:_SHOWN]:
        output.warn(f"segment {offset} could not be sealed: {error}")
