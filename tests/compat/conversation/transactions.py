"""Half messages, their ends, and what is asked about those that have none."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from engine.format.message import parse_msg_id
from engine.wire.codes import RequestCode as Code
from tests.compat.conversation import say
from tests.compat.conversation.talk import Talk

END, SEND, PULL, CHECK = Code.END_TRANSACTION, Code.SEND_MESSAGE_V2, Code.PULL_MESSAGE, Code.CHECK_TRANSACTION_STATE
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
_SILENCE_S = 0.5
"""How long is waited where no answer is to come."""
_COPY = ("ext.tranStateTableOffset", "body[0].queue_offset")
"""Which copy of a half message it is: how many there are is a matter of the check's clock."""


async def transactions(talk: Talk) -> None:
    """One after the other; nothing else here sends half messages."""
    peer, far = await talk.peer("transactor"), await talk.peer("bystander")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Traded"))
    await peer.quiet(Code.HEART_BEAT, None, say.heartbeat("tp", producers=("Traders",)))

    async def half(step: str, name: str, born: int | None = None, **more: Any) -> dict[str, Any]:
        said = {"TRAN_MSG": "true", "PGROUP": "Traders", "UNIQ_KEY": name, "TAGS": "t", "KEYS": "tk", "WAIT": "true"}
        born = born or time.time_ns() // 1_000_000
        ext = say.send("Traded", 2, f=4, a="Traders", g=born, i=say.properties(**{**said, **more}))
        found = await peer.ask(step, SEND, ext, b"half " + name.encode(), loose=("ext.queueOffset",))
        assert found is not None
        return {
            "producerGroup": "Traders",
            "tranStateTableOffset": found.fields["queueOffset"],
            "commitLogOffset": parse_msg_id(found.fields["msgId"])[1],
            "commitOrRollback": COMMIT,
            "fromTransactionCheck": "false",
            "msgId": name,
            "transactionId": name,
        }

    async def until_asked(name: str) -> dict[str, str]:
        """The question about one message, whatever else is asked."""
        for _ in range(30):
            found = await peer.next_push(15, CHECK)
            assert found is not None, f"nobody asks about {name}"
            if found.fields["msgId"] == name:
                return dict(found.fields)
        raise AssertionError(f"nobody asks about {name}")

    end = await half("transaction: half", "T1")
    await say.until_there(peer, "RMQ_SYS_TRANS_HALF_TOPIC", 1)
    await peer.ask("transaction: the half topic", PULL, say.pull("RMQ_SYS_TRANS_HALF_TOPIC", maxMsgNums=1))
    await peer.ask("transaction: not to be pulled yet", PULL, say.pull("Traded", 0, 2))
    await peer.ask("transaction: unknown", END, {**end, "commitOrRollback": UNKNOWN}, wait_s=_SILENCE_S)
    await peer.ask("transaction: no such end", END, {**end, "commitOrRollback": 5})
    await peer.ask("transaction: wrong group", END, {**end, "producerGroup": "Others"})
    await peer.ask("transaction: wrong table offset", END, {**end, "tranStateTableOffset": 999})
    await peer.ask("transaction: wrong place", END, {**end, "commitLogOffset": 1 << 50})
    await peer.ask("transaction: a place below 0", END, {**end, "commitLogOffset": -1})
    for name in end:
        if name not in ("msgId", "transactionId"):
            await peer.ask(f"transaction: without {name}", END, {**end, name: None, "commitOrRollback": 12}
                           if name != "commitOrRollback" else {**end, name: None})  # fmt: skip
    await peer.ask("transaction: no fields", END)
    end = await half("transaction: another half", "T2")
    await peer.ask("transaction: commit", END, end)
    await say.until_there(peer, "Traded", 1, 2)
    await peer.ask("transaction: what was committed", PULL, say.pull("Traded", 0, 2))
    await peer.ask("transaction: commit again", END, end)
    await say.until_there(peer, "Traded", 2, 2)
    end = await half("transaction: a third half", "T3")
    await peer.ask("transaction: roll back", END, {**end, "commitOrRollback": ROLLBACK})
    await peer.ask("transaction: roll back again", END, {**end, "commitOrRollback": ROLLBACK})
    await peer.ask("transaction: commit after it", END, end)
    end = await half("transaction: a fourth half", "T4")
    await peer.tell("transaction: commit one-way", END, end)
    await say.until_there(peer, "Traded", 4, 2)
    found = await peer.quiet(PULL, say.pull("Traded", 0, 2))
    talk.note("transaction: so many are there", {"max": found.fields["maxOffset"]})
    ext = say.send("Traded", 3, i="TRAN_MSG\x01false")
    await peer.ask("transaction: TRAN_MSG=false", SEND, ext, b"x")
    sent = await peer.quiet(SEND, say.send("Traded", 1, i="PGROUP\x01Traders"), b"plain")
    place = parse_msg_id(sent.fields["msgId"])[1]
    # --- what nobody ends is asked about
    end = await half("transaction: nobody ends it", "T6")
    pushed = await peer.pushed("transaction: asked about it", 20, CHECK, loose=_COPY)
    assert pushed is not None
    await far.pushed("transaction: another is not asked", 0.2, CHECK)
    answer = {
        **end,
        "tranStateTableOffset": pushed.fields["tranStateTableOffset"],
        "commitLogOffset": pushed.fields["commitLogOffset"],
        "fromTransactionCheck": "true",
    }
    await peer.ask("transaction: still unknown", END, {**answer, "commitOrRollback": UNKNOWN}, wait_s=_SILENCE_S)
    pushed = await peer.pushed("transaction: asked again", 20, CHECK, loose=_COPY)
    assert pushed is not None
    answer["tranStateTableOffset"] = pushed.fields["tranStateTableOffset"]
    answer["commitLogOffset"] = pushed.fields["commitLogOffset"]
    found = await peer.quiet(Code.GET_MAX_OFFSET, {"topic": "Traded", "queueId": 2})
    last = int(found.fields["offset"])
    await peer.ask("transaction: committed when asked", END, answer)
    await say.until_there(peer, "Traded", last + 1, 2)
    await peer.ask("transaction: what came of it", PULL, say.pull("Traded", last, 2))
    await asyncio.sleep(5)
    await peer.forget_pushed()
    await peer.pushed("transaction: nothing more is asked", 3, CHECK)
    # --- one that may not be asked about for long does not hold up those behind it
    immune = await half("transaction: immune", "T7", CHECK_IMMUNITY_TIME_IN_SECONDS="3000")
    await half("transaction: behind the immune", "T8")
    asked = await until_asked("T8")
    talk.note("transaction: the one behind is asked about", {"id": asked["msgId"]})
    await peer.ask("transaction: the immune one is committed by its first place", END, immune)
    end = await half("transaction: immune for a moment", "T9", CHECK_IMMUNITY_TIME_IN_SECONDS="3")
    asked = await until_asked("T9")
    talk.note("transaction: asked about when its moment is over", {"id": asked["msgId"]})
    await half("transaction: older than files are kept", "T10", say.BORN)
    ext = {"topic": "TRANS_CHECK_MAX_TIME_TOPIC", "queueId": 0}
    await say.until(peer, Code.GET_MAX_OFFSET, ext, lambda found: found.fields["offset"] != "0")
    await peer.ask("transaction: too old, put aside", PULL, say.pull(ext["topic"]), loose=("body[0].queue_offset",))
    # --- odd ones
    delayed = await half("transaction: delayed", "T5", DELAY="1")
    await peer.ask("transaction: delayed, commit", END, delayed)
    end = await half("transaction: without group", "T11", PGROUP="")
    await peer.ask("transaction: without group, commit", END, end)
    ext = {**end, "commitLogOffset": place, "tranStateTableOffset": 0}
    await peer.ask("transaction: a message that is no half", END, ext)
    said = "TRAN_MSG\x01TRUE\x02PGROUP\x01x"
    await peer.ask(
        "transaction: TRAN_MSG in other letters", SEND, say.send("Traded", 3, i=said), b"x", loose=("ext.queueOffset",)
    )
