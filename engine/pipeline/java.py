"""The Java that Spark runs on: where it is, or how to get it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from engine.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ENDS_S = 20.0
"""How long a JVM may take to end."""

LEAST_JAVA = 17
_HOW_TO_GET_IT = "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "~/.sdkman/candidates/java/current",
    "~/.jdks/*",
)
_ANSWERS_S = 30


class SparkMissing(StorageError):
    """Java or pyspark is not there."""

    code: ClassVar[str] = "spark-missing"


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """The Java to run Spark with: its home directory. Raises SparkMissing: none of version 17 or newer."""
    return find_java_version(environment)[0]


def find_java_version(environment: Mapping[str, str] | None = None) -> tuple[Path, int]:
    """The same with its major version. JAVA_HOME, then PATH, then where distributions put it.

    Raises:
        SparkMissing: none of version 17 or newer.
    """
    environment = os.environ if environment is None else environment
    old: list[str] = []
    for home in dict.fromkeys(_homes(environment)):
        version = java_version(home)
        if version is not None and version >= LEAST_JAVA:
            return home, version
        if version is not None:
            old.append(f"{home} has Java {version}")
    versions = "; ".join(old) if old else "none was found"
    raise SparkMissing(f"Spark needs Java {LEAST_JAVA} or newer: {versions}", hint=_HOW_TO_GET_IT)


def java_version(home: Path) -> int | None:
    """The major version of the Java in `home`; None when there is none."""
    java = home / "bin" / "java"
    if not java.is_file():
        return None
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWERS_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])  # "1.8" is 8


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    for place in _PLACES:
        path = Path(place).expanduser()
        yield from sorted(path.parent.glob(path.name), reverse=True)


def await_end(process: subprocess.Popen[bytes]) -> None:
    """A JVM that was asked to end is gone when this returns: it is killed where it does not listen."""
    try:
        process.wait(_ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
