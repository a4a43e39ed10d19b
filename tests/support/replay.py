"""Apache's recorded puts, put again into our store at the store times that Apache gave them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from engine.format import hosts
from engine.format.batch import BatchItem
from engine.format.message import Message
from engine.log.results import PutResult
from engine.store import MessageStore

Line = dict[str, Any]


class Clock:
    """Says what it was set to."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def message_of(put: Line) -> Message:
    """The message (of a batch: what its messages share)."""
    return Message(
        topic=put["topic"],
        body=base64.b64decode(put["body"]) if "body" in put else b"",
        queue_id=put["queueId"],
        properties=put["properties"],
        flag=put["flag"],
        sys_flag=put["sysFlag"],
        born_timestamp=put["bornTimestamp"],
        born_host=hosts.parse(put["bornHost"]),
        store_host=hosts.parse(put["storeHost"]),
        reconsume_times=put["reconsumeTimes"],
        prepared_transaction_offset=put["preparedTransactionOffset"],
    )


def items_of(put: Line) -> list[BatchItem]:
    """The messages of a batch."""
    return [
        BatchItem(base64.b64decode(one["body"]), one["flag"], one["propertiesString"].encode()) for one in put["inner"]
    ]


def put(store: MessageStore, line: Line) -> PutResult:
    """Put one recorded put."""
    message = message_of(line)
    return store.put_batch(message, items_of(line)) if line["kind"] == "batch" else store.put(message)


def replay(store: MessageStore, clock: Clock, puts: Sequence[Line], log: Sequence[Line]) -> list[PutResult]:
    """Put all of them; `log` are the records that Apache made of them, in order, which have the store times."""
    at = 0
    results: list[PutResult] = []
    for recorded in puts:
        line = recorded
        clock.now = log[at]["storeTimestamp"]
        if "preparedOf" in line:
            half = results[line["preparedOf"]].append
            assert half is not None
            line = {**line, "preparedTransactionOffset": half.physical_offset}
        results.append(put(store, line))
        at += len(line["inner"]) if line["kind"] == "batch" else 1
    assert at == len(log)
    return results
