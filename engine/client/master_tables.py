"""What a slave copies of its master beside the log: topics, groups, offsets, delayed messages' offsets. And what a
broker tells of its store.

Source: SlaveSynchronize (4.9.8); BROKER.md 3.2.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from engine.client.connection import TIMEOUT_S, RemotingClient
from engine.client.signed_peer import Peer
from engine.errors import FormatError, StorageError
from engine.format import fastjson, timer_check, timer_progress
from engine.format.numbers import INT_MAX, LONG_MAX, LONG_MIN, parse_int
from engine.format.timer_progress import TimerProgress
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    import logging
    from collections.abc import Coroutine, Mapping

    from engine.client.signed_peer import RequestSigner
    from engine.wire.command import RemotingCommand

TOPICS, GROUPS = "topics.json", "subscriptionGroup.json"
OFFSETS, DELAYS = "consumerOffset.json", "delayOffset.json"
_NO_FIGURES_YET = "NoSuchElementException"
_TRIES = 8
_AGAIN_S = 0.5
TABLES = {
    TOPICS: RequestCode.GET_ALL_TOPIC_CONFIG,
    OFFSETS: RequestCode.GET_ALL_CONSUMER_OFFSET,
    DELAYS: RequestCode.GET_ALL_DELAY_OFFSET,
    GROUPS: RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
}
"""The tables by the names of their files, and the requests that ask for them, in Apache's order."""


class Master(Protocol):
    """Who is asked: a connection, or one that signs."""

    address: str

    def ask(self, code: int) -> Coroutine[Any, Any, RemotingCommand]:
        """The answer. Raises StorageError."""


class AskedMaster:
    """The master at an address, over one connection after the other; what it demands an account for is signed."""

    def __init__(self, address: str, signer: RequestSigner | None, log: logging.Logger) -> None:
        self.address = address
        self._log = log
        self._peer = Peer(signer, self._signing_begins)
        self._client: RemotingClient | None = None

    def by(self, client: RemotingClient) -> AskedMaster:
        """Asked by this connection from now on."""
        self._client = client
        return self

    async def ask(self, code: int) -> RemotingCommand:
        """The answer. Raises StorageError."""
        assert self._client is not None
        return await self._peer.ask(self._client, code, {}, b"", TIMEOUT_S)

    def _signing_begins(self, account: str) -> None:
        extra = {"peer": self.address, "account": account}
        self._log.info("the master demands an account; requests for the master's tables are signed", extra=extra)


async def fetch(master: Master, name: str) -> dict[str, Any]:
    """One of the tables, as its file has it.

    Raises:
        StorageError: the master does not give it. FormatError: it is none.
    """
    answer = await master.ask(TABLES[name])
    if answer.code != ResponseCode.SUCCESS:
        raise StorageError(f"{master.address} did not send {name}: {answer.remark or answer.code}")
    loop = asyncio.get_running_loop()
    table = await loop.run_in_executor(None, lambda: fastjson.loads(bytes(answer.body).decode("utf-8", "replace")))
    if not isinstance(table, dict):
        raise FormatError(f"{master.address}: {name} is not a JSON object")
    return table


async def timers(master: Master) -> TimerProgress | None:
    """How far a master has delivered timer messages; None: it has none, as RocketMQ 4.9, or they are off there.

    A daemon of rstore says more beside the checkpoint of RocketMQ 5. Raises StorageError, FormatError.
    """
    answer = await master.ask(RequestCode.GET_TIMER_CHECK_POINT)
    if answer.code != ResponseCode.SUCCESS:
        return None
    if all(name in answer.fields for name in timer_progress.NAMES):
        return TimerProgress.of(answer.fields)
    return TimerProgress.of_check(timer_check.decode(answer.body))


async def runtime(master: Master) -> dict[str, str]:
    """What a broker tells of its store (GET_BROKER_RUNTIME_INFO). Raises StorageError, FormatError.

    Apache's broker has no figures in its first second and ends such a request with a NoSuchElementException
    (StoreStatsService#getPutTps before #sampling): it is asked again.
    """
    answer = await master.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    for _ in range(_TRIES):
        if answer.code == ResponseCode.SUCCESS or _NO_FIGURES_YET not in (answer.remark or ""):
            break
        await asyncio.sleep(_AGAIN_S)
        answer = await master.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = fastjson.loads(bytes(answer.body).decode("utf-8", "replace") or "{}")
    figures = table.get("table") if isinstance(table, dict) else None
    if answer.code != ResponseCode.SUCCESS or not isinstance(figures, dict):
        raise StorageError(f"{master.address} did not send its runtime figures: {answer.remark or answer.code}")
    return {str(name): str(value) for name, value in figures.items()}


def extent(runtime: dict[str, str]) -> tuple[int, int]:
    """Where that broker's log begins and ends (physical). Raises FormatError: it does not say."""
    offsets = []
    for name in ("commitLogMinOffset", "commitLogMaxOffset"):
        text = runtime.get(name, "")
        try:
            offsets.append(max(0, parse_int(text, LONG_MIN, LONG_MAX)))
        except ValueError:
            raise FormatError(f"the broker sent an invalid {name}: {text[:100]!r}") from None
    return offsets[0], offsets[1]


async def settings(master: Master) -> dict[str, str]:
    """A broker's own settings (GET_BROKER_CONFIG). Raises StorageError."""
    answer = await master.ask(RequestCode.GET_BROKER_CONFIG)
    if answer.code != ResponseCode.SUCCESS:
        raise StorageError(f"{master.address} did not send its settings: {answer.remark or answer.code}")
    lines = bytes(answer.body).decode("utf-8", "replace").splitlines()
    return {name.strip(): value.strip() for name, equals, value in (line.partition("=") for line in lines) if equals}


def number(settings: Mapping[str, str], name: str, most: int = INT_MAX) -> int | None:
    """A number of a broker's settings; None: it says none, or 0. Raises FormatError: what it says is none."""
    text = settings.get(name)
    try:
        return (parse_int(text, 0, most) or None) if text else None
    except ValueError:
        raise FormatError(f"the broker sent an invalid {name}: {(text or '')[:100]!r}") from None
