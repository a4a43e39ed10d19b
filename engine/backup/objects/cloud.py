"""Objects in S3, GCS or Azure, by obstore: its retries and time limits, credentials as their own tools have them."""

from __future__ import annotations

import datetime
import itertools
import time
from typing import TYPE_CHECKING, Any, TypeVar

from engine.backup.objects.objects import LARGEST, StoredObject
from engine.errors import NotFound, NotInstalled, PeerLost, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.files.raw_file import Bytes

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
"""What a location in object storage begins with."""
_AT_ONCE = 500
_Answer = TypeVar("_Answer")
_MOST_RETRIES = 8
_PATIENCE_S = 180
_AGAIN_S = (0.2, 1.0, 5.0)
"""After so long what was answered in part is asked for again."""
_LIMITS: Any = {
    "timeout": datetime.timedelta(minutes=2),
    "connect_timeout": datetime.timedelta(seconds=20),
    "allow_http": True,
}


class CloudObjects:
    """See `Objects`.

    Args:
        url: such as `s3://name/prefix`; region, endpoint and credentials are the environment's.
        patience_s: how long a request is tried again that fails.

    Raises:
        NotInstalled: obstore is not there. StorageError: not a location that it knows.
    """

    def __init__(self, url: str, patience_s: float = _PATIENCE_S) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError:
            raise NotInstalled(
                "object storage needs the package obstore", hint="pip install 'rstore[backup]'"
            ) from None
        self._url = url.rstrip("/")
        self._patience_s = patience_s
        self._obs: Any = obstore
        retries: Any = {"max_retries": _MOST_RETRIES, "retry_timeout": datetime.timedelta(seconds=patience_s)}
        try:
            self._store: Any = from_url(self._url, client_options=_LIMITS, retry_config=retries)
        except Exception as error:  # noqa: BLE001 - its errors have no common base but this one
            raise StorageError(f"no location in object storage: {_first_line(error)}", path=url) from None

    @property
    def where(self) -> str:
        """See Objects."""
        return self._url

    def get(self, name: str) -> bytes:
        """See Objects."""
        return self._again(lambda: self._get(name))

    def _get(self, name: str) -> bytes:
        try:
            answer = self._obs.get(self._store, name)
            if answer.meta["size"] > LARGEST:
                raise StorageError(
                    f"the object has {answer.meta['size']} bytes, more than {LARGEST}", path=self._path(name)
                )
            return bytes(answer.bytes())
        except StorageError:
            raise
        except FileNotFoundError:
            raise NotFound("no such object in the repository", path=self._path(name)) from None
        except Exception as error:  # noqa: BLE001
            raise self._failed("reading", name, error) from None

    def put(self, name: str, data: Bytes) -> None:
        """See Objects."""
        try:
            self._obs.put(self._store, name, bytes(data))
        except Exception as error:  # noqa: BLE001
            raise self._failed("writing", name, error) from None

    def put_new(self, name: str, data: Bytes) -> bool:
        """See Objects."""
        try:
            self._obs.put(self._store, name, bytes(data), mode="create")
        except self._obs.exceptions.AlreadyExistsError:
            return False
        except Exception as error:  # noqa: BLE001
            raise self._failed("writing", name, error) from None
        return True

    def size(self, name: str) -> int | None:
        """See Objects."""
        try:
            return int(self._obs.head(self._store, name)["size"])
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001
            raise self._failed("looking at", name, error) from None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See Objects."""
        yield from self._again(lambda: self._all(prefix))

    def _all(self, prefix: str) -> tuple[StoredObject, ...]:
        try:
            return tuple(
                StoredObject(meta["path"], meta["size"], meta["last_modified"].timestamp())
                for some in self._obs.list(self._store, prefix=prefix, chunk_size=_AT_ONCE)
                for meta in some
            )
        except Exception as error:  # noqa: BLE001
            raise self._failed("listing", prefix, error) from None

    def delete(self, names: Iterable[str]) -> None:
        """See Objects."""
        left = iter(names)
        while some := list(itertools.islice(left, _AT_ONCE)):
            try:
                self._obs.delete(self._store, some)
            except FileNotFoundError:  # of which one it does not say
                self._delete_each(some)
            except Exception as error:  # noqa: BLE001
                raise self._failed("deleting", some[0], error) from None

    def _delete_each(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                self._obs.delete(self._store, name)
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001
                raise self._failed("deleting", name, error) from None

    def _again(self, ask: Callable[[], _Answer]) -> _Answer:
        """obstore tries a request again that fails, and not one whose answer breaks off."""
        end = time.monotonic() + self._patience_s
        for wait_s in _AGAIN_S:
            try:
                return ask()
            except PeerLost:
                if time.monotonic() + wait_s > end:
                    raise
                time.sleep(wait_s)
        return ask()

    def _path(self, name: str) -> str:
        return f"{self._url}/{name}"

    def _failed(self, doing: str, name: str, error: Exception) -> StorageError:
        kinds = self._obs.exceptions
        text = f"{doing}: {_first_line(error)}"
        if isinstance(error, (kinds.PermissionDeniedError, kinds.UnauthenticatedError, PermissionError)):
            hint = "look at the credentials and their rights there"
            return StorageError(text, path=self._path(name), hint=hint)
        return PeerLost(text, path=self._path(name), hint="run the same command again: it continues")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
