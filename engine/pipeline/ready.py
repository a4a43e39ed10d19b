"""Whether jobs can run here on Spark, without starting it: Java and the packages."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import Any

from engine.pipeline.java import SparkMissing, find_java_version

PACKAGES = ("pyspark", "pyarrow")


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
    packages = {name: _version(name) for name in PACKAGES}
    missing = [name for name, version in packages.items() if version is None]
    why = f"{' and '.join(missing)} not installed (pip install 'rstore[spark]')" if missing else None
    try:
        java, version = find_java_version()
    except SparkMissing as error:
        return Ready(None, None, packages, str(error) if why is None else f"{why}; {error}")
    return Ready(str(java), version, packages, why)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
