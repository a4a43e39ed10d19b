"""What a repair saved, written out for `rstore salvage export`: messages as JSON lines, or the log's bytes as files."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from engine.errors import InvalidArgument, Refused, from_os_error
from rstore_cli._common import FOUND, OK
from rstore_cli.render import count, size

if TYPE_CHECKING:
    from engine.repair.salvage.export import Export, Filter
    from rstore_cli._common import Settings
    from rstore_cli.render import Output


def export_messages(settings: Settings, repair: str, target: str, wanted: Filter) -> int:
    """The messages into a new file, or to stdout ("-"); the exit code."""
    from engine.files.disk import Disk
    from engine.format.message_json import to_json
    from engine.repair.salvage.export import Export

    output = settings.output()
    export = Export(Disk(), settings.load(), repair, wanted)
    if target == "-":
        for place, message in export:
            output.line(to_json(message, place=place))
        sys.stdout.flush()
        _tell(output, export, to_stdout=False)
    else:
        with _new_file(target) as file:
            try:
                for place, message in export:
                    line = json.dumps(to_json(message, place=place), ensure_ascii=False, separators=(",", ":"))
                    file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                raise from_os_error(error, "writing messages", target) from None
            except InvalidArgument:  # nothing was written: the next try finds no file in its way
                Path(target).unlink(missing_ok=True)
                raise
        _tell(output, export, to_stdout=True, target=target)
    return FOUND if export.report.lost else OK


def export_files(settings: Settings, repair: str, directory: Path) -> int:
    """The log's bytes into a new directory; the exit code."""
    from engine.files.disk import Disk
    from engine.repair.salvage.export import export_raw

    output = settings.output()
    written = export_raw(Disk(), settings.load(), repair, str(directory))
    if output.json:
        output.document(
            {"directory": str(directory), "files": [{"path": path, "bytes": saved} for path, saved in written]}
        )
        return OK
    output.table(["file", "bytes saved"], [[path, str(saved)] for path, saved in written], numbers=(1,), whole=(0,))
    output.text(f"Next: {shlex.join(('rstore', '--store', str(directory), 'dump', 'commitlog'))}")
    return OK


def _private(path: str, flags: int) -> int:
    """open(2): what is made can be read by its owner alone."""
    return os.open(path, flags, 0o600)


@contextmanager
def _new_file(target: str) -> Iterator[IO[str]]:
    try:
        # Closed below; each error has its own text.
        file = open(target, "x", encoding="utf-8", opener=_private)  # noqa: SIM115
    except FileExistsError:
        raise Refused("the path already exists", path=target, hint="name a new file, or - for stdout") from None
    except OSError as error:
        raise from_os_error(error, "creating", target) from None
    with file:
        yield file


def _tell(output: Output, export: Export, *, to_stdout: bool, target: str | None = None) -> None:
    """What went out, and what was saved but is no message."""
    report = export.report
    if to_stdout and output.json:
        summary: dict[str, Any] = report.to_json()
        output.document({"repair": export.saved.id, "output": target, "messages": export.messages, "scan": summary})
        return
    say = output.text if to_stdout else output.note
    say(f"{count(export.messages, 'message')} of {count(report.sound.records, 'sound record')} exported")
    for lost_range in report.lost:
        output.warn(
            f"no sound record: {size(lost_range.length)} at {lost_range.offset} "
            f"({lost_range.file} from byte {lost_range.position} on): {lost_range.reason}"
        )
    if report.displaced.records:
        output.warn(
            f"{count(report.displaced.records, 'displaced record')}; --displaced also exports "
            "those between the sound ones"
        )
