"""Paths as people write them for Spark: `file:` URIs are paths of this machine, any other scheme is refused by name."""

from __future__ import annotations

import re

from engine.errors import InvalidArgument

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)", re.DOTALL)
_HERE = ("", "localhost")


def local_path(place: str) -> str:
    """The path that is meant: `file:/data`, `file:///data` and `file://localhost/data` are /data; a path is itself.

    Nothing is decoded: %20 are three characters, as in Spark's own paths.

    Raises:
        InvalidArgument: a place of another scheme (hdfs:, s3a: …), or of another machine.
    """
    match = _SCHEME.fullmatch(place)
    if match is None:
        return place
    scheme, rest = match[1].lower(), match[2]
    if scheme != "file":
        raise InvalidArgument(
            f"{match[1]}: is not a supported file system for stores and tables: {place}",
            hint="a directory that driver and executors see at the same path, or file:///DIR",
        )
    if not rest.startswith("//"):
        return rest
    host, slash, path = rest[2:].partition("/")
    if host not in _HERE:
        raise InvalidArgument(f"the files are on another machine: {place}", hint="mount them, then give the directory")
    return slash + path
