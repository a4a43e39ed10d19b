"""The Spark session of a job: Java found, settings that the pipeline needs, nothing on the screen that is not ours.

What a job needs of Spark is little: Arrow between Python and the JVM, and filters pushed down to Python data sources
(off by default in Spark 4). `--conf` has the last word on everything.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import InvalidArgument, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

LOCAL = "local[*]"
LEAST_JAVA = 17
_HOW_TO_GET_JAVA = "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
_PLACES = ("/usr/lib/jvm/*", "/opt/java/*", "/opt/jdk*", "~/.sdkman/candidates/java/current")
_DEFAULTS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "16",
}


class SparkMissing(StorageError):
    """Java or pyspark is not there, or Spark does not start."""


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """The Java to run Spark with: its home directory. JAVA_HOME, then PATH, then where distributions put it.

    Raises:
        SparkMissing: none of version 17 or newer.
    """
    environment = os.environ if environment is None else environment
    old: list[str] = []
    for home in _homes(environment):
        version = _version(home / "bin" / "java")
        if version is not None and version >= LEAST_JAVA:
            return home
        if version is not None:
            old.append(f"{home} has Java {version}")
    found = "; ".join(old) if old else "none was found"
    raise SparkMissing(f"Spark needs Java {LEAST_JAVA} or newer: {found}", hint=_HOW_TO_GET_JAVA)


@contextlib.contextmanager
def session(
    *, master: str | None = None, conf: Mapping[str, str] | None = None, name: str = "rstore"
) -> Iterator[SparkSession]:
    """A Spark session with the data source registered, stopped at the end; one that is active is used, and stays.

    Args:
        master: where Spark runs (default: `spark.master` of `conf`, else `LOCAL`).
        conf: Spark's settings, over ours.
        name: the application's, in Spark's own pages.

    Raises:
        SparkMissing.
    """
    wanted = {**_DEFAULTS, **(conf or {})}
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissing(
            f"pyspark is not installed ({error.name or error})", hint="pip install 'rstore[spark]'"
        ) from None
    active = SparkSession.getActiveSession()
    if active is not None:
        _register(active)
        yield active
        return
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name).master(master or wanted.get("spark.master", LOCAL))
    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        found = builder.getOrCreate()
    except Exception as error:
        raise SparkMissing(f"Spark does not start: {_first_line(error)}", hint="see --master and --conf") from error
    try:
        found.sparkContext.setLogLevel("ERROR")
        _register(found)
        yield found
    finally:
        found.stop()


def parse_conf(words: list[str]) -> dict[str, str]:
    """`KEY=VALUE` each. Raises InvalidArgument."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.startswith("spark."):
            raise InvalidArgument(f"--conf {word}: no setting of Spark", hint="like spark.executor.memory=2g")
        found[key] = value
    return found


def _register(spark: SparkSession) -> None:
    from engine.pipeline.source import RocketMQStoreSource

    spark.dataSource.register(RocketMQStoreSource)


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    for place in _PLACES:
        path = Path(place).expanduser()
        yield from sorted(path.parent.glob(path.name), reverse=True)


def _version(java: Path) -> int | None:
    if not java.is_file():
        return None
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', said.stderr + said.stdout)
    return int(match.group(1)) if match else None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
