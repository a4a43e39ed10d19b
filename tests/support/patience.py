"""Requests of a client that wait for a busy broker, instead of the three and five seconds that are enough elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import cast

import pytest

from engine.client.admin.session import AdminSession
from engine.client.connection import RemotingClient
from engine.client.peers import Peers

PATIENCE_S = 60.0
_ASKING = (
    (RemotingClient.connect, "timeout_s"),
    (RemotingClient.ask, "timeout_s"),
    (Peers.__init__, "connect_s"),
    (Peers.ask, "timeout_s"),
    (AdminSession.ask, "timeout_s"),
    (AdminSession.json, "timeout_s"),
    (AdminSession.table, "timeout_s"),
)


@pytest.fixture(scope="module", autouse=True)
def requests_are_waited_for() -> Iterator[None]:
    """Those that name no time of their own. For a `conftest.py`; a module whose peers are mute has its own fixture of
    this name, which does nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for function, name in _ASKING:
            usual = cast("FunctionType", function).__kwdefaults__
            assert usual is not None
            assert usual[name] < PATIENCE_S, function
            patch.setitem(usual, name, PATIENCE_S)
        yield
