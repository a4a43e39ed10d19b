"""Asking the daemon of a store, at the socket that lies in it."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

from engine.errors import RStoreError, StorageError
from engine.files import local_socket
from engine.format import names

if TYPE_CHECKING:
    import socket
    from pathlib import Path

ASK_S = 10.0
WORK_S = 600.0
"""How long is waited for what the daemon knows, and for what it has to do."""


class DaemonError(RStoreError):
    """What went wrong in the daemon, as it tells it."""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> DaemonError:
        """The error of an answer, with its code and its exit code."""
        error = cls(answer["message"], path=answer["path"], offset=answer["offset"], hint=answer["hint"])
        error.code = answer["code"]  # type: ignore[misc]
        error.exit_code = answer["exit"]  # type: ignore[misc]
        return error


class DaemonConnection:
    """The daemon of a store; one connection a question.

    Args:
        root: the store's directory.
    """

    def __init__(self, root: Path) -> None:
        self._path = str(root / names.SOCKET)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, *, wait_s: float = ASK_S) -> Any:
        """The answer; None when there is no daemon.

        Raises:
            DaemonError. StorageError: it may not be asked, or does not answer.
        """
        connected = local_socket.connect_to(self._path, wait_s)
        if connected is None:
            return None
        connection = _Connection(connected)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            value = json.loads(answer.read())
        except TimeoutError:
            raise StorageError(f"the daemon did not answer within {wait_s:g} s", path=self._path) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise StorageError(
                f"the connection to the daemon broke during its answer: {error!r}", path=self._path
            ) from None
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise DaemonError.of(value["error"])
        return value


class ExpiringDaemon:
    """The daemon of a store that deletes files of its own log (engine.repair.expire.change.RetentionDaemon).

    `in_use`: physical offset from which on it needs its log. `archive`: the repository without which it deletes
    nothing (serve --archive); None: it deletes what has expired.
    """

    def __init__(self, connection: DaemonConnection, in_use: int, archive: str | None) -> None:
        self._connection = connection
        self.in_use = in_use
        self.archive = archive

    def delete(self, before: int, *, archived: bool) -> int | None:
        """Have it delete the files before an offset; where its log starts then, None: it has gone.

        `archived`: an archive has them. Raises as `DaemonConnection.ask`.
        """
        answer = self._connection.ask("POST", "/expire", {"before": before, "archived": archived}, wait_s=WORK_S)
        return None if answer is None else int(answer["minOffset"])


def daemon_of(root: Path) -> ExpiringDaemon | None:
    """The daemon that has the store open, None: there is none. Raises as `DaemonConnection.ask`."""
    connection = DaemonConnection(root)
    answer = connection.ask("GET", "/in-use")
    return None if answer is None else ExpiringDaemon(connection, answer["inUse"], answer.get("archive"))


def name_servers_of(root: Path) -> list[str]:
    """Where clients find the daemon that has the store open, `host:port` each.

    Raises:
        StorageError: there is no daemon, or no name server knows it. As `DaemonConnection.ask`.
    """
    answer = DaemonConnection(root).ask("GET", "/where")
    if answer is None:
        raise StorageError(
            "no daemon runs on this store",
            path=root,
            hint="name a running cluster with --namesrv HOST:PORT, or start a daemon: rstore serve",
        )
    servers = [str(one) for one in answer["nameServers"]]
    if not servers:
        raise StorageError(
            "the daemon of this store is known to no name server",
            path=root,
            hint="start it without --no-names, or with --namesrv HOST:PORT",
        )
    return servers


class _Connection(http.client.HTTPConnection):
    """Over a socket that is connected."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__("daemon")
        self._connected = connected

    def connect(self) -> None:
        """As of HTTPConnection."""
        self.sock = self._connected
