"""From a location as an operator types it to where its objects lie."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.backup.objects.cloud import SCHEMES, CloudObjects
from engine.backup.objects.directory import DirectoryObjects
from engine.errors import InvalidArgument

if TYPE_CHECKING:
    from engine.backup.objects.objects import Objects
    from engine.files.disk import Disk


def objects_at(disk: Disk, location: str) -> Objects:
    """The objects of a location: a directory, or `s3://name/prefix` and the like.

    Raises:
        InvalidArgument: an empty one, or a scheme that is not known. NotInstalled, StorageError: see CloudObjects.
    """
    scheme, separator, rest = location.partition("://")
    if not location.strip() or (separator and not rest.strip("/")):
        raise InvalidArgument("the repository's location is empty", hint="--repo DIR, or --repo s3://NAME/PREFIX")
    if not separator:
        return DirectoryObjects(disk, os.path.abspath(location))
    if scheme == "file":
        return DirectoryObjects(disk, os.path.abspath(rest))
    if scheme in SCHEMES:
        return CloudObjects(location)
    raise InvalidArgument(
        f"no kind of repository is called {scheme}://", hint=f"a directory, or one of {', '.join(SCHEMES[:4])}"
    )
