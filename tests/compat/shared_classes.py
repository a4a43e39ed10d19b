"""Archives of loaded classes (Java's CDS): a Java that has one starts with two thirds of the processor time.

`make interop-parts` makes one for each class path, by running what the tests run. Where there is none, or Java does
not take it (it is another Java's, or a jar has changed), the same programs start without.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""An archive that is not taken is no news: what the program prints is what tests read."""


def options(class_path: str) -> tuple[str, ...]:
    """Java's options with this class path: none without an archive, or while one is being made."""
    archive = _place(class_path)
    return (f"-XX:SharedArchiveFile={archive}", *QUIET) if archive is not None and archive.is_file() else ()


def make_of_stores() -> None:
    """An archive of the programs that open Apache's store. Raises Missing."""
    from tests.compat import apache, toolchain

    class_path = toolchain.harness()
    if _is_missing(class_path):
        with tempfile.TemporaryDirectory(prefix="rstore-classes-") as directory:
            file = Path(directory) / "classes"
            given = [str(Path(directory) / "store"), "T", "0", "3", *apache.options(apache.SMALL, None)]
            noted = _noting(class_path, file)
            with apache.command("Append", given) as (java, *words):
                subprocess.run([java, *noted, "-Drstore.archive=true", *words], capture_output=True, check=False)
            _keep(class_path, file)


def make_of_brokers(version: str | None = None) -> None:
    """Archives of the broker, 4.9.8's with its clients or that of a release of RocketMQ 5. Raises Missing."""
    from tests.compat import real_broker, served, toolchain

    apache = toolchain.apache_broker() if version is None else toolchain.apache_broker5(version)
    clients = toolchain.clients()
    if not _is_missing(apache.class_path) and (version or not _is_missing(clients)):
        return
    with tempfile.TemporaryDirectory(prefix="rstore-classes-") as directory:
        home = Path(directory)
        noted = _noting(apache.class_path, home / "broker")
        with (
            real_broker.name_server(home / "names", apache=apache) as names,
            real_broker.broker(home / "store", names, apache=apache, java_options=noted),
        ):
            if version is None:
                served.run_scenario(names, "cluster", 10, *_noting(clients, home / "clients"))
        _keep(apache.class_path, home / "broker")
        _keep(clients, home / "clients")


def _place(class_path: str) -> Path | None:
    """Beside the jar that leads the class path; None where jars of others lead it."""
    jar = Path(class_path.split(os.pathsep, maxsplit=1)[0])
    name = f"{jar.stem}-{hashlib.sha256(class_path.encode()).hexdigest()[:8]}.jsa"
    return jar.with_name(name) if jar.suffix == ".jar" else None


def _is_missing(class_path: str) -> bool:
    archive, jar = _place(class_path), Path(class_path.split(os.pathsep, maxsplit=1)[0])
    return archive is not None and not (archive.is_file() and archive.stat().st_mtime_ns > jar.stat().st_mtime_ns)


def _noting(class_path: str, file: Path) -> tuple[str, ...]:
    """Options of a Java that leaves its classes there when it ends."""
    archive = _place(class_path)
    if archive is None:
        return ()
    archive.unlink(missing_ok=True)
    return (f"-XX:ArchiveClassesAtExit={file}", *QUIET)


def _keep(class_path: str, file: Path) -> None:
    """Other workers see a whole archive, or none."""
    archive = _place(class_path)
    if archive is not None and file.is_file():
        kept = archive.with_suffix(".part")
        kept.unlink(missing_ok=True)
        kept.write_bytes(file.read_bytes())
        kept.replace(archive)
