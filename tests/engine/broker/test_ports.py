"""What is listened on and what clients are told: said as it is, with what sets it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from engine.broker.net.ports import Listening, unreachable
from engine.broker.settings.broker_settings import BrokerSettings
from engine.errors import StorageError
from tests.engine.broker.client import daemon
from tests.support.in_memory import tmp_path

__all__ = ["tmp_path"]


@pytest.mark.parametrize(
    ("listen", "told", "why"),
    [
        ("127.0.0.1", "127.0.0.1", None),
        ("127.0.0.1", "192.0.2.7", "only 127.0.0.1 is listened on: add --listen 0.0.0.0"),
        ("localhost", "192.0.2.7", "only localhost is listened on"),
        ("0.0.0.0", "192.0.2.7", None),
        ("192.0.2.7", "192.0.2.7", None),
        ("0.0.0.0", "127.0.0.1", "set brokerIP1 to another one"),
    ],
)
def test_whether_clients_reach_what_they_are_told(listen: str, told: str, why: str | None) -> None:
    found = unreachable(BrokerSettings(listen_host=listen, broker_ip1=told), f"{told}:10911")
    assert (found is None) is (why is None)
    assert why is None or (found is not None and why in found and f"clients get the address {told}:10911" in found)


def test_where() -> None:
    found = Listening("192.0.2.7:10911", "192.0.2.7:9876", "0.0.0.0:5557", host="0.0.0.0")
    assert (found.bound, found.names_bound, found.url) == ("0.0.0.0:10911", "0.0.0.0:9876", "http://127.0.0.1:5557/")
    six = Listening("192.0.2.7:10911", None, "[::1]:5557", host="::1")
    assert (six.bound, six.names_bound, six.url) == ("[::1]:10911", None, "http://[::1]:5557/")


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("listen_port", "--port or listenPort"),
        ("name_service_port", "--names-port"),
        ("metrics_port", "--metrics-port"),
    ],
)
def test_a_port_that_is_taken_is_named_with_what_sets_it(setting: str, option: str, tmp_path: Path) -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(StorageError) as found:
                async with daemon(tmp_path / "s", **{setting: port}):
                    pass
        assert found.value.message == f"cannot listen on 127.0.0.1:{port}: address already in use"
        assert option in (found.value.hint or "")

    asyncio.run(run())


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(StorageError, match=r"cannot listen on 192\.0\.2\.7:0: cannot assign") as found:
            async with daemon(tmp_path / "s", listen_host="192.0.2.7"):
                pass
        assert "use --listen with an address of this machine" in (found.value.hint or "")

    asyncio.run(run())
