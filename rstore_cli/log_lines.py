"""Messages of a range of the log as JSON lines: the text of messages.to_json, without an object for each message.

Hosts and topics repeat, so each is put into words once; a record's fixed part is one unpack. Records that were read by
kernels are put into words by one (engine.log.kernels.json_lines), many at once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from json.encoder import JSONEncoder, encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import hosts, message, properties, sysflag
from engine.format.message_json import to_json
from engine.format.record import MESSAGE_MAGIC, V4_HEAD
from engine.log.batch import RecordBatch

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

_V6 = sysflag.HOSTS_V6_MASK
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class MadeLines:
    """Lines of messages, UTF-8, in blocks; and how many they are."""

    blocks: list[Buffer]
    count: int


class LogLines:
    """Makes lines. `kind`: what stands first in each. `redact`: without bodies. `ascii`: only ASCII characters."""

    def __init__(self, kind: str, *, redact: bool, ascii: bool) -> None:  # noqa: A002 - json's own word
        self._kind = kind
        self._redact = redact
        self._ascii = ascii
        self._word: Callable[[str], str] = encode_basestring_ascii if ascii else encode_basestring
        self._json = JSONEncoder(ensure_ascii=ascii, separators=(",", ":")).encode
        self._host = lru_cache(_REMEMBERED)(self._host_of)
        self._topic = lru_cache(_REMEMBERED)(lambda raw: self._word(raw.decode("utf-8", "replace")))

    def made(self, batch: RecordBatch, topic: bytes | None = None, most: int | None = None) -> MadeLines:
        """The lines of `lines`, the first `most` of them. Thread-safe."""
        if batch.table is None or self._ascii:
            lines = list(islice(self.lines(batch, topic), most))
            return MadeLines(["".join(lines).encode()] if lines else [], len(lines))
        import numpy as np

        from engine.log.kernels.json_lines import LineForm, LineMaker

        def plain(i: int) -> bytes | None:
            one = RecordBatch(batch.base, batch.buffer, table[i : i + 1])
            return next((line.encode() for line in self.lines(one, topic)), None)

        table = batch.table
        maker = LineMaker(LineForm(self._kind, self._redact, topic))
        at, sizes = (np.ascontiguousarray(table[:, i]) for i in range(2))
        made = list(maker.blocks(batch.buffer, at, sizes, at + batch.base, plain, most=most))
        return MadeLines([block for block, _ in made], sum(count for _, count in made))

    def lines(self, batch: RecordBatch, topic: bytes | None = None) -> Iterator[str]:
        """A line, with its end, for each message of the batch (of `topic`, as stored)."""
        rows = batch.rows if batch.table is None else batch.table.tolist()
        buffer, base = batch.buffer, batch.base
        for i, row in enumerate(rows):
            at, _, _, _, _, flags, _, body_at, body_length, topic_at, topic_length, properties_at, length = row
            name = bytes(buffer[topic_at : topic_at + topic_length])
            if topic is not None and name != topic:
                continue
            head = V4_HEAD.unpack_from(buffer, at)
            if flags & _V6 or head[1] != MESSAGE_MAGIC:
                line = to_json(message.decode(batch.record(i)), place=base + at, redact=self._redact)
                yield self._json({"kind": self._kind, **line}) + "\n"
                continue
            (total, _, crc, queue, flag, queue_offset, stored_at, _, born, born_host, stored, store_host, again,
             prepared, _) = head  # fmt: skip
            place = base + at
            words = properties.parse(bytes(buffer[properties_at : properties_at + length]).decode("utf-8", "replace"))
            moved = "" if stored_at == place else f',"storedPhysicalOffset":{stored_at}'
            body = "" if self._redact else self._body(bytes(buffer[body_at : body_at + body_length]), flags)
            yield (
                f'{{"kind":"{self._kind}","msgId":"{store_host.hex().upper()}{place:016X}",'
                f'"topic":{self._topic(name)},"queueId":{queue},"queueOffset":{queue_offset},'
                f'"physicalOffset":{place},"storeSize":{total},"bodyCRC":{crc},"flag":{flag},"sysFlag":{flags},'
                f'"bornTimestamp":{born},"bornHost":{self._host(born_host)},"storeTimestamp":{stored},'
                f'"storeHost":{self._host(store_host)},"reconsumeTimes":{again},'
                f'"preparedTransactionOffset":{prepared},"properties":{self._json(words)},'
                f'"bodyLength":{body_length}{moved}{body}}}\n'
            )

    def _body(self, body: bytes, flags: int) -> str:
        if not flags & sysflag.COMPRESSED:
            try:
                return f',"body":{self._word(body.decode("utf-8"))}'
            except UnicodeDecodeError:
                pass
        return f',"bodyBase64":"{base64.b64encode(body).decode()}"'

    def _host_of(self, raw: bytes) -> str:
        return self._word(str(hosts.decode(raw, 0, is_v6=False)))
