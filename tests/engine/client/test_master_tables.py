"""What a broker tells of itself, also in its first second, in which Apache's has no figures yet."""

from __future__ import annotations

import asyncio
import json

import pytest

from engine.client import master_tables
from engine.errors import StorageError
from engine.wire.codes import ResponseCode
from engine.wire.command import RemotingCommand

NOT_YET = "java.util.NoSuchElementException, java.base/java.util.LinkedList.getLast(LinkedList.java:261)"
"""As a broker 4.9.8 answered that had just started."""


class JustStarted:
    """A broker that has no figures for so many requests."""

    address = "127.0.0.1:10911"

    def __init__(self, empty: int, remark: str = NOT_YET) -> None:
        self.empty, self.remark, self.asked = empty, remark, 0

    async def ask(self, code: int) -> RemotingCommand:
        self.asked += 1
        if self.asked <= self.empty:
            return RemotingCommand(int(ResponseCode.SYSTEM_ERROR), remark=self.remark)
        return RemotingCommand(
            int(ResponseCode.SUCCESS), body=json.dumps({"table": {"commitLogMaxOffset": "7"}}).encode()
        )


def test_it_is_asked_again_until_it_has_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_tables, "_AGAIN_S", 0)
    broker = JustStarted(3)
    assert asyncio.run(master_tables.runtime(broker)) == {"commitLogMaxOffset": "7"}
    assert broker.asked == 4


@pytest.mark.parametrize(("remark", "asked"), [(NOT_YET, 9), ("no permission", 1)])
def test_it_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch, remark: str, asked: int) -> None:
    monkeypatch.setattr(master_tables, "_AGAIN_S", 0)
    broker = JustStarted(1000, remark)
    with pytest.raises(StorageError, match=remark[:13]):
        asyncio.run(master_tables.runtime(broker))
    assert broker.asked == asked
