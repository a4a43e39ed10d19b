"""Whether jobs can run here on Spark, without starting it: Java and the packages, each of a version that is enough."""

from __future__ import annotations

import re
from importlib import metadata, util
from pathlib import Path
from typing import Any

from engine.dataclass import dataclass
from engine.pipeline.java import SparkMissing, find_java_version

LEAST: dict[str, tuple[int, ...]] = {"pyspark": (4, 2), "pyarrow": (18,)}
"""Packages and the versions that are enough, as in pyproject.toml. pyspark 4.2: limits of Python streams."""
_VERSION = re.compile(r"""^__version__\b.*?=\s*["']([^"']+)["']""", re.MULTILINE)
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Ready:
    """What there is. `why`: why jobs can't run, None when they can."""

    java: str | None
    java_version: int | None
    packages: dict[str, str | None]
    why: str | None

    def to_json(self) -> dict[str, Any]:
        """For `rstore doctor --json`."""
        java = {"java": self.java, "javaVersion": self.java_version}
        return {"ready": self.why is None, **java, **self.packages, "why": self.why}


def ready() -> Ready:
    """Look."""
    packages = {name: _version(name) for name in LEAST}
    lacking = _lacking(packages)
    why = None if lacking is None else str(lacking)
    try:
        java, version = find_java_version()
    except SparkMissing as error:
        return Ready(None, None, packages, str(error) if why is None else f"{why}; {error}")
    return Ready(str(java), version, packages, why)


def demand_packages() -> None:
    """Raises SparkMissing: a Python package that jobs need is not there, or too old."""
    lacking = _lacking({name: _version(name) for name in LEAST})
    if lacking is not None:
        raise lacking


def _lacking(packages: dict[str, str | None]) -> SparkMissing | None:
    problems = []
    for name, version in packages.items():
        least = ".".join(map(str, LEAST[name]))
        if version is None:
            problems.append(f"{name} is not installed")
        elif tuple(map(int, _NUMBERS.findall(version)[:2])) < LEAST[name]:
            problems.append(f"{name} {version} is too old: {least} or newer is needed")
    if not problems:
        return None
    return SparkMissing("; ".join(problems), hint="pip install --upgrade 'rstore[spark]'")


def _version(name: str) -> str | None:
    """That of the package which an import would find: a Spark of its own may stand before what pip installed."""
    spec = util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    try:
        written = _VERSION.search((Path(spec.origin).parent / "version.py").read_text(encoding="utf-8"))
    except OSError:
        written = None
    if written is not None:
        return written[1]
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
