"""The differences between Apache's broker and ours that are so on purpose, each with its reason."""

from __future__ import annotations

from tests.compat.conversation.table import Explained

_NAMELESS = "Apache takes a name that is missing for the text null; ours refuses the request"
_UNREADABLE = (
    "Apache means to refuse an expression that can't be read, but does so by a Java assert, which is off: it filters "
    "nothing; ours refuses it, in the words that Apache has for it"
)
_REST = "Apache's parser takes the start of an expression for the whole; ours refuses it"
_OWN_SERIALISATION = "Apache gives this answer in its own serialisation, JSON; ours in the request's"
_FLAG = "Apache's copy of a half message that is asked about has lost its flag; ours keeps it"
_GROUP_NAME = "Apache's client refuses a group of this name, and its broker takes it; ours refuses it, too"
_NOT_TAKEN = "of the groups whose names ours refuses"

EXPLAINED: list[Explained] = [
    Explained(
        "*",
        "remark",
        "Java's exception and its stack; ours says what is wrong",
        theirs=r"(java|org|com)\.[\w.$]+(Exception|Error)\b.*",
    ),
    # --- frames
    Explained("wire: empty object", "answer", "Apache answers under a number of its own, which nobody waits for"),
    Explained("waiting: binary header", "serialisation", _OWN_SERIALISATION),
    Explained("key: binary header", "serialisation", _OWN_SERIALISATION),
    # --- names that are missing
    Explained("offset: * without consumerGroup", "*", _NAMELESS),
    Explained("offset: commit without topic", "*", _NAMELESS),
    Explained("offset: who consumes", "body.groupList", _NAMELESS, theirs=r'\["Counters", "null"\]'),
    Explained("list: consumers' offsets", "body.offsetTable.Counted@null.0", _NAMELESS),
    Explained("key: without *", "*", _NAMELESS),
    Explained("route: no *", "*", _NAMELESS),
    Explained("names: topics of no cluster", "*", _NAMELESS),
    Explained("names: delete without topic", "*", _NAMELESS),
    Explained("kv: get without *", "*", _NAMELESS),
    Explained("kv: list without namespace", "*", _NAMELESS),
    Explained("kv: put without value", "*", "Apache keeps a value that it can't give again; ours refuses it"),
    Explained(
        "route: of a topic that its broker has deleted",
        "*",
        "Apache's name server keeps a topic until somebody deletes it there, too; ours has its own broker's table",
    ),
    # --- names that no client takes
    Explained("group: make, blank name", "*", _GROUP_NAME),
    Explained("group: make, odd name", "*", _GROUP_NAME),
    Explained("pull: an empty group", "*", _GROUP_NAME),
    Explained("back: empty group", "*", _GROUP_NAME),
    Explained("back: by a send, the name of no group", "*", _GROUP_NAME),
    Explained("back: by a send, dead", "ext.queueOffset", _NOT_TAKEN),
    Explained("list: groups' settings", "body.subscriptionGroupTable..*", _NOT_TAKEN, ours="<not there>"),
    Explained("list: groups' settings", "body.subscriptionGroupTable. .*", _NOT_TAKEN, ours="<not there>"),
    Explained("list: groups' settings", "body.subscriptionGroupTable.a b/c.*", _NOT_TAKEN, ours="<not there>"),
    Explained("list: topics' settings", "body.topicConfigTable.%RETRY%.*QueueNums", _NOT_TAKEN, theirs="1", ours="4"),
    # --- bodies
    Explained(
        "group: make, an array", "*", "Apache makes nothing of an array, and calls it a success; ours refuses it"
    ),
    Explained("heartbeat: sets of null", "*", "Apache fails; ours takes null for none", theirs=r"1|java.*"),
    Explained("heartbeat: subscriptions of null", "*", "Apache fails; ours takes null for none", theirs=r"1|java.*"),
    Explained("client config: *", "remark", "ours says what is wrong", theirs="null|Cannot invoke.*"),
    Explained("topic: make, negative queues", "*", "Apache makes a topic that nothing can be sent to; ours refuses it"),
    # --- sends
    Explained("send: V2, d no number", "*", "ours reads the number of queues only to make a topic; this one is there"),
    # --- pulls
    Explained(
        "pull: empty expression type", "*", "to Apache an empty type is of tags, but the tags are not read", ours=".*"
    ),
    Explained("pull: unknown expression type", "*", _UNREADABLE),
    Explained("pull: expression type in small letters", "*", _UNREADABLE),
    Explained("pull: SQL, a star", "*", _UNREADABLE),
    Explained("pull: SQL, broken", "*", _UNREADABLE),
    Explained("pull: SQL, a number alone", "*", "Apache fails to evaluate it and gives all; to ours it is not true"),
    Explained("pull: SQL, like", "*", _REST),
    Explained("pull: lite", "*", "a request of 5.x clients, which ours serves, too"),
    # --- transactions
    Explained("transaction: asked again", "body[[]0].flag", _FLAG, theirs="0", ours="7"),
    Explained("transaction: what came of it", "body[[]0].flag", _FLAG, theirs="0", ours="7"),
    Explained(
        "transaction: delayed, commit",
        "*",
        "Apache puts a half message with a delay, when it is committed, where no consumer finds it; ours refuses",
    ),
    Explained(
        "list: consumers' offsets",
        "body.offsetTable.RMQ_SYS_TRANS_*",
        "how far the checks of transactions are is a matter of the clock",
        always=False,
    ),
    Explained(
        "list: delays' offsets",
        "body.offsetTable.1",
        "the half message with a delay that ours refuses to commit is asked about again, and delayed again",
        always=False,
    ),
]
