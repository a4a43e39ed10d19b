"""Made-up messages, the same for the same seed, with everything on purpose that has ever tripped a store."""

from __future__ import annotations

import base64
import random
import zlib
from dataclasses import dataclass, field

from .apache import Line

BORN = 1_735_700_000_000
HASH_MIN = 0x8000_0000
MASK = 0xFFFF_FFFF
ZERO_CRC_BODY = bytes.fromhex("9d0ad96d")
"""Four bytes whose CRC-32 is 0."""

LONG_TOPIC = "LongTopic_" + "0123456789" * 10 + "_abcdefg"
TOPICS = ["Orders", "%RETRY%billing", LONG_TOPIC, "T", "audit_log-x"]
HOT = "Hot"
TAGS = ["TagA", "TagB", "polygenelubricants", "标签", "🚀rocket", "*odd||tag", ""]
WORDS = ["store", "broker", "queue", "offset", "index", "commit", "flush", "magic", "consume", "recover", "segment"]
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
ZIP = 0x301
MULTI_TAGS = 2


def java_hash(text: str) -> int:
    """Java's String.hashCode(), as an unsigned number."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "big")) & MASK
    return value


def unlucky_key(topic: str) -> str:
    """A key whose `topic#key` hashes to Integer.MIN_VALUE: seven base-31 digits on top of what the topic gives."""
    digits = 7
    base = ord("A")
    start = java_hash(f"{topic}#" + chr(base) * digits)
    rest = (HASH_MIN - start) & MASK
    key = ""
    for _ in range(digits):
        rest, digit = divmod(rest, 31)
        key = chr(base + digit) + key
    if java_hash(f"{topic}#{key}") != HASH_MIN:
        raise AssertionError(f"{topic}#{key} does not hash to Integer.MIN_VALUE")
    return key


def properties_string(properties: dict[str, str]) -> str:
    """The form in which a message's properties are stored."""
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items())


@dataclass
class Maker:
    """Makes puts; `messages` counts the messages in them."""

    seed: int
    messages: int = 0
    made: list[Line] = field(default_factory=list)
    open_transactions: list[Line] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def until(self, messages: int) -> list[Line]:
        """Makes puts until there are that many messages; gives all made so far."""
        while self.messages < messages:
            self._next()
        return self.made

    def one(self, kind: str, topic: str, queue_id: int, **changes: object) -> Line:
        """Makes one put of a single message; `changes` replace fields."""
        put = self._header(kind, topic, queue_id)
        properties = self._properties(topic)
        put |= {"properties": properties, "body": _base64(self._body())} | changes
        if topic.startswith("%RETRY%"):
            put["reconsumeTimes"] = self.random.randrange(1, 17)
        put["waitStoreMsgOK"] = put["properties"].get("WAIT") != "false"
        put["propertiesString"] = properties_string(put["properties"])
        self._add(put, 1)
        return put

    def batch(self, topic: str, queue_id: int, count: int) -> Line:
        """Makes one put of several messages."""
        put = self._header("batch", topic, queue_id)
        put["properties"] = self.random.choice([{"WAIT": "false"}, {"WAIT": "false", "CLUSTER": "Compat"}, {}])
        put["waitStoreMsgOK"] = "WAIT" not in put["properties"]
        put["inner"] = [self._inner(topic) for _ in range(count)]
        self._add(put, count)
        return put

    def _next(self) -> None:
        topic, queue_id = self._queue()
        draw = self.random.random()
        if draw < 0.06 and not topic.startswith("%RETRY%"):
            self.batch(topic, queue_id, self.random.randrange(2, 9))
        elif draw < 0.11:
            body = zlib.compress(self._text(self.random.randrange(200, 3000)))
            self.one("zip", topic, queue_id, sysFlag=ZIP, body=_base64(body))
        elif draw < 0.16:
            self.delayed(topic, queue_id, self.random.randrange(1, 21))
        elif draw < 0.21:
            self.prepared(topic, queue_id)
        elif draw < 0.26 and self.open_transactions:
            self.end(self.random.choice([COMMIT, ROLLBACK]))
        else:
            self.one("normal", topic, queue_id)

    def delayed(self, topic: str, queue_id: int, level: int) -> Line:
        """Makes a delayed message; Apache takes a level above its 18 for 18."""
        properties = self._properties(topic) | {"DELAY": str(level)}
        return self.one("delay", topic, queue_id, delayTimeLevel=level, properties=properties)

    def prepared(self, topic: str, queue_id: int) -> Line:
        """Makes the first half of a transaction."""
        properties = self._properties(topic) | {"TRAN_MSG": "true", "PGROUP": "compat_pg"}
        put = self.one("prepared", topic, queue_id, sysFlag=PREPARED, properties=properties)
        self.open_transactions.append(put)
        return put

    def end(self, how: int) -> Line:
        """Makes the end of the oldest open transaction: COMMIT or ROLLBACK."""
        half = self.open_transactions.pop(0)
        properties = {k: v for k, v in half["properties"].items() if k not in ("TRAN_MSG", "PGROUP")}
        body = half["body"] if how == COMMIT else ""
        kind = "commit" if how == COMMIT else "rollback"
        return self.one(
            kind,
            half["topic"],
            half["queueId"],
            sysFlag=how,
            properties=properties,
            body=body,
            preparedOf=half["i"],
            flag=half["flag"],
        )

    def _header(self, kind: str, topic: str, queue_id: int) -> Line:
        flag = self.random.choice([0, 0, 0, 1, -1, self.random.randrange(-(1 << 31), 1 << 31)])
        return {
            "i": len(self.made),
            "kind": kind,
            "topic": topic,
            "queueId": queue_id,
            "flag": 0 if kind == "batch" else flag,
            "sysFlag": 0,
            "bornTimestamp": BORN + len(self.made) * 97,
            "bornHost": self._host(self.random.randrange(1024, 65536)),
            "storeHost": self._host(10911) if self.random.random() < 0.1 else "127.0.0.1|10911",
            "reconsumeTimes": 0,
            "preparedTransactionOffset": 0,
            "delayTimeLevel": 0,
        }

    def _inner(self, topic: str) -> Line:
        properties = self._properties(topic) if self.random.random() < 0.9 else {}
        return {
            "flag": self.random.choice([0, 1, -7]),
            "properties": properties,
            "propertiesString": properties_string(properties),
            "body": _base64(self._body()),
        }

    def _add(self, put: Line, messages: int) -> None:
        self.made.append(put)
        self.messages += messages

    def _queue(self) -> tuple[str, int]:
        if self.random.random() < 0.5:
            return HOT, 0
        return self.random.choice(TOPICS), self.random.choice([0, 1, 2, 3, 9])

    def _host(self, port: int) -> str:
        if self.random.random() < 0.15:
            groups = [f"{self.random.randrange(1 << 16):x}" for _ in range(7)]
            return f"2001:{':'.join(groups)}|{port}"
        return f"{self.random.randrange(1, 224)}.{'.'.join(str(self.random.randrange(256)) for _ in range(3))}|{port}"

    def _properties(self, topic: str) -> dict[str, str]:
        chance = self.random.random
        properties = {}
        if chance() < 0.8:
            properties["KEYS"] = self._keys(topic)
        if chance() < 0.9:
            properties["UNIQ_KEY"] = f"{self.random.getrandbits(128):032X}"
        if chance() < 0.6:
            properties["WAIT"] = "false"
        if chance() < 0.75:
            properties["TAGS"] = self.random.choice(TAGS)
        if chance() < 0.3:
            properties[f"u{self.random.randrange(1000)}"] = self.random.choice(WORDS)
        if chance() < 0.1:
            properties["e"] = ""
        return properties

    def _keys(self, topic: str) -> str:
        pool = [f"k{self.random.randrange(60)}" for _ in range(4)]
        pool += [f"key-{self.random.getrandbits(40):x}", "键值", f"🚀{self.random.randrange(9)}"]
        if self.random.random() < 0.05:
            return unlucky_key(topic)
        words = self.random.sample(pool, self.random.choice([1, 1, 2, 2, 3]))
        return self.random.choice([" ", " ", " ", "  "]).join(words)

    def _body(self) -> bytes:
        draw = self.random.random()
        if draw < 0.05:
            return b""
        if draw < 0.1:
            return self.random.randbytes(self.random.randrange(1, 600))
        if draw < 0.12:
            return self._text(self.random.randrange(4000, 9000))
        return self._text(self.random.randrange(1, 1400))

    def _text(self, length: int) -> bytes:
        words = (self.random.choice(WORDS) for _ in range(length // 4 + 1))
        return " ".join(words).encode()[:length]


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode()


def everything(seed: int, messages: int) -> list[Line]:
    """Puts of every kind: what is wanted on purpose first, then at random until there are enough messages."""
    maker = Maker(seed)
    _on_purpose(maker)
    return maker.until(messages)


def _on_purpose(maker: Maker) -> None:
    maker.one("normal", HOT, 0, body=_base64(ZERO_CRC_BODY))
    maker.one("normal", HOT, 0, body="")
    maker.one("normal", HOT, 0, properties={})
    maker.one("normal", HOT, 0, properties={"KEYS": "two  blanks", "TAGS": "polygenelubricants", "e": ""})
    maker.one("normal", HOT, 0, properties={"KEYS": unlucky_key(HOT), "UNIQ_KEY": "0" * 32})
    maker.one("normal", HOT, 0, properties={"KEYS": "same same", "TAGS": "a||b"}, sysFlag=MULTI_TAGS)
    maker.one("normal", LONG_TOPIC, 9, flag=-(1 << 31))
    maker.one("normal", "T", 0, bornHost="2001:db8:0:0:0:0:0:1|40001", storeHost="2001:db8:0:0:0:0:0:2|10911")
    maker.one("normal", "%RETRY%billing", 0)
    maker.batch("Orders", 2, 5)
    for level in (1, 18, 19, 20):
        maker.delayed("Orders", 1, level)
    for how in (COMMIT, ROLLBACK):
        maker.prepared("Orders", 0)
        maker.end(how)


def dispatched(seed: int, messages: int) -> list[Line]:
    """Puts that name further queues, light ones (%LMQ%) mostly, which get a unit of their own for each message."""
    maker = Maker(seed)
    lists = ["%LMQ%red", "%LMQ%red,%LMQ%green", "%LMQ%green,%LMQ%blue,%LMQ%red", "Side", "%LMQ%blue,Side", None]
    while maker.messages < messages:
        properties = {"KEYS": f"k{maker.messages}", "TAGS": maker.random.choice(TAGS[:4])}
        queues = lists[maker.messages % len(lists)]
        if queues:
            properties["INNER_MULTI_DISPATCH"] = queues
        if maker.random.random() < 0.3:
            properties["WAIT"] = "false"
        maker.one("normal", "LmqParent", maker.messages % 2, properties=properties)
    return maker.made
