"""Delays, messages that come again, dead letters."""

from __future__ import annotations

from engine.format.message import decode, parse_msg_id
from engine.wire.codes import RequestCode as Code
from tests.compat.conversation import say
from tests.compat.conversation.talk import Peer, Talk

BACK, PULL, SEND = Code.CONSUMER_SEND_MSG_BACK, Code.PULL_MESSAGE, Code.SEND_MESSAGE_V2
_LEVEL = ("ext.queueOffset",)


async def place_of(peer: Peer, topic: str, offset: int) -> tuple[int, str]:
    """Where in the log a message is, and its id."""
    found = await peer.quiet(PULL, say.pull(topic, offset))
    message = decode(found.body)
    return message.physical_offset, message.msg_id


async def delays_and_backs(talk: Talk) -> None:
    """One after the other: both put into the queues of the delay levels, and are told the offsets there."""
    await _delays(talk)
    await _backs(talk)


async def _delays(talk: Talk) -> None:
    """Delay levels."""
    peer = await talk.peer("delayer")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Delayed"))
    for level in (1, 2):
        said = say.properties(DELAY=str(level), TAGS="late", KEYS="dk", WAIT="true")
        await peer.ask(f"delay: level {level}", SEND, say.send("Delayed", 1, i=said), b"level %d" % level)
    for level in (18, 19, 99):
        said = say.properties(DELAY=str(level))
        await peer.ask(f"delay: level {level}", SEND, say.send("Delayed", 1, i=said), b"never here")
    await peer.ask("delay: of a retry topic", SEND, say.send("%RETRY%Later", i="DELAY\x011", j=1), b"again")
    await say.until_there(peer, "SCHEDULE_TOPIC_XXXX", 3, 17)
    await peer.ask("delay: what is put by, level 18", PULL, say.pull("SCHEDULE_TOPIC_XXXX", 0, 17, maxMsgNums=3))
    await say.until_there(peer, "Delayed", 2, 1)
    await peer.ask("delay: what came", PULL, say.pull("Delayed", 0, 1))
    await say.until_there(peer, "%RETRY%Later", 1)
    await peer.ask("delay: what came to the retry topic", PULL, say.pull("%RETRY%Later", 0, 0))


async def _backs(talk: Talk) -> None:
    """CONSUMER_SEND_MSG_BACK, and sends to a retry topic."""
    peer = await talk.peer("backer")
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("Given"))
    for at in range(3):
        said = say.properties(TAGS="g", KEYS=f"key{at}", UNIQ_KEY=f"U{at}", WAIT="true")
        await peer.quiet(SEND, say.send("Given", i=said), b"give %d" % at)
    await say.until_there(peer, "Given", 3)
    where, msg_id = await place_of(peer, "Given", 0)
    assert parse_msg_id(msg_id)[1] == where
    back = {"offset": where, "group": "Backers", "delayLevel": 1, "originMsgId": msg_id, "originTopic": "Given"}
    back["unitMode"] = "false"
    await peer.ask("back: level 1", BACK, back)
    await say.until_there(peer, "%RETRY%Backers", 1)
    await peer.ask("back: what came", PULL, say.pull("%RETRY%Backers", 0))
    again, _ = await place_of(peer, "%RETRY%Backers", 0)
    await peer.ask("back: the second time", BACK, {**back, "offset": again})
    await say.until_there(peer, "%RETRY%Backers", 2)
    await peer.ask("back: what came the second time", PULL, say.pull("%RETRY%Backers", 1))
    await peer.ask("back: to the dead", BACK, {**back, "delayLevel": -1})
    await say.until_there(peer, "%DLQ%Backers", 1)
    await peer.ask("back: what the dead are", PULL, say.pull("%DLQ%Backers", 0))
    await peer.ask("back: as often as the client says", BACK, {**back, "offset": again, "maxReconsumeTimes": 1})
    await say.until_there(peer, "%DLQ%Backers", 2)
    await peer.ask("back: dead by it", PULL, say.pull("%DLQ%Backers", 1))
    await peer.ask("back: an old client's word", BACK, {**back, "offset": again, "maxReconsumeTimes": 1}, version=120)
    await peer.ask("back: 0 times", BACK, {**back, "maxReconsumeTimes": 0})
    await peer.ask("back: level too big", BACK, {**back, "delayLevel": 25})
    await peer.ask("back: no such place", BACK, {**back, "offset": 1 << 50})
    await peer.ask("back: a place below 0", BACK, {**back, "offset": -1})
    await peer.ask("back: the middle of a message", BACK, {**back, "offset": where + 1})
    for name in back:
        await peer.ask(f"back: without {name}", BACK, {**back, name: None})
    await peer.ask("back: no fields", BACK)
    await peer.ask("back: empty group", BACK, {**back, "group": ""})
    await peer.ask("back: without an id", BACK, {**back, "originMsgId": "", "group": "BackersToo"})
    await say.until_there(peer, "%RETRY%BackersToo", 1)
    await peer.ask("back: without an id, what came", PULL, say.pull("%RETRY%BackersToo", 0))
    await peer.ask("back: binary header", BACK, back, kind=1)
    await peer.tell("back: one-way", BACK, back)
    groups = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await peer.quiet(groups, None, say.group("BackNone", retryQueueNums=0))
    await peer.ask("back: a group without retry queues", BACK, {**back, "group": "BackNone"})
    await peer.quiet(groups, None, say.group("BackOnce", retryMaxTimes=0))
    await peer.ask("back: a group that never retries", BACK, {**back, "group": "BackOnce"})
    await peer.quiet(Code.UPDATE_AND_CREATE_TOPIC, say.topic("%RETRY%BackShut", 1, 4))
    await peer.ask("back: a retry topic that is read only", BACK, {**back, "group": "BackShut"})
    # --- by a send
    said = say.properties(TAGS="g", RETRY_TOPIC="Given", ORIGIN_MESSAGE_ID=msg_id, DELAY="1", RECONSUME_TIME="2")
    again_by_send = say.send("%RETRY%BackSend", i=said, j=2, l=3)
    # The half message that `transactions` delays goes to the same level whenever its check comes round.
    await peer.ask("back: by a send", SEND, again_by_send, b"by a send", loose=_LEVEL)
    await say.until_there(peer, "%RETRY%BackSend", 1)
    await peer.ask("back: by a send, what came", PULL, say.pull("%RETRY%BackSend", 0))
    await peer.ask("back: by a send, dead", SEND, {**again_by_send, "j": 3}, b"dead by a send")
    await say.until_there(peer, "%DLQ%BackSend", 1)
    await peer.ask("back: by a send, what the dead are", PULL, say.pull("%DLQ%BackSend", 0))
    await peer.ask("back: by a send, dead without delay", SEND, say.send("%RETRY%BackSend", j=16), b"dead")
    await say.until_there(peer, "%DLQ%BackSend", 2)
    await peer.ask("back: by a send, what the dead are then", PULL, say.pull("%DLQ%BackSend", 0))
    old = {**again_by_send, "j": 9}
    await peer.ask("back: by a send, an old client's word", SEND, old, b"old", version=120, loose=_LEVEL)
    await peer.ask("back: by a send, a queue too big", SEND, {**again_by_send, "e": 5}, b"x")
    await peer.ask("back: by a send, the name of no group", SEND, say.send("%RETRY%"), b"x")
    await peer.ask("back: the dead letters' topic itself", SEND, say.send("%DLQ%BackSend"), b"x")
