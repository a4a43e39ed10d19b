"""Requests of a client that wait for a busy broker, instead of the three and five seconds that are enough elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.client.admin.session import AdminSession
from engine.client.connection import RemotingClient
from engine.client.peers import Peers

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def requests_are_waited_for() -> Iterator[None]:
    """Those that name no time of their own. For a `conftest.py`; a module whose peers are mute has its own fixture of
    this name, which does nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for ask in (RemotingClient.ask, Peers.ask, AdminSession.ask, AdminSession.json):
            usual = ask.__kwdefaults__
            assert usual is not None
            assert usual["timeout_s"] < PATIENCE_S
            patch.setitem(usual, "timeout_s", PATIENCE_S)
        yield
