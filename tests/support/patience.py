"""What lets a busy machine stand still: settings of brokers, and requests of a client that wait for them.

Elsewhere three and five seconds are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import cast

import pytest

from engine.client.admin.session import AdminSession
from engine.client.connection import RemotingClient
from engine.client.peers import Peers

PATIENCE_S = 60.0
PATIENT = {"waitTimeMillsInSendQueue": 60_000, "osPageCacheBusyTimeOutMills": 60_000}
"""A send that waits on a busy machine is not refused: a one-way send that is refused is lost, and nobody is told.

Apache's defaults are 200 ms and 1 s. Source: BrokerFastFailure#cleanExpiredRequest."""
_ON_A_FULL_DISK = "rocketmq.broker.diskSpaceWarningLevelRatio=0.99\nrocketmq.broker.diskSpaceCleanForciblyRatio=0.98\n"
"""As real_broker's: what a test finds does not hang on how full the machine's disk is."""
_ASKING = (
    (RemotingClient.connect, "timeout_s"),
    (RemotingClient.ask, "timeout_s"),
    (Peers.__init__, "connect_s"),
    (Peers.ask, "timeout_s"),
    (AdminSession.ask, "timeout_s"),
    (AdminSession.json, "timeout_s"),
    (AdminSession.table, "timeout_s"),
)


def patient_conf() -> str:
    """Lines of broker.conf for a daemon of ours."""
    return _ON_A_FULL_DISK + "".join(f"{key}={value}\n" for key, value in PATIENT.items())


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
