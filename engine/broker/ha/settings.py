"""The settings of replication by Apache's keys and defaults (MessageStoreConfig, BrokerConfig), and three of our own.

Apache's service has no lock: who reaches its port gets the log. `haTls`, `haAllow` and `haListen` say who may.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from engine.broker.ha.slave_list import SlaveList, parse_slave_list
from engine.broker_conf.values import ValueKind, read_value
from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.wire.address import parse_address
from engine.wire.ha import MAX_BODY

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBERS = {
    "haSendHeartbeatInterval": "heartbeat_ms",
    "haHousekeepingInterval": "housekeeping_ms",
    "haTransferBatchSize": "batch",
    "haSlaveFallbehindMax": "fall_behind_max",
}
FIELDS = {**_NUMBERS, "haTls": "tls", "haAllow": "allow", "haListen": "listen"}
"""Keys of a broker's properties file, and the fields that they set."""
KEYS = frozenset((*FIELDS, "haMasterAddress"))
"""The keys of a broker's properties file that `HaSettings.of` knows."""


@dataclass(frozen=True, slots=True)
class HaSettings:
    """Times in ms, sizes in bytes.

    Attributes:
        heartbeat_ms: between two signs of life, of either side.
        housekeeping_ms: a side that has been silent for so long is disconnected.
        batch: the most that a transfer carries.
        fall_behind_max: a slave with a larger lag (bytes) counts as absent.
        master_address: of the master's service, for a slave; "": a name server knows it.
        master_broker: of the master's broker, whose tables a slave takes; "": a name server knows it.
        start: where an empty slave begins, physical; None: with the master's last file, as Apache's does.
        retry_ms: a slave connects again after so long.
        tls: replication uses TLS; a master's slaves must, a slave does.
        allow: who may copy a master's log; empty: whoever connects.
        listen: the address that a master's service listens on; "": see `engine.broker.net.ports.ha_host`.
    """

    heartbeat_ms: int = 5000
    housekeeping_ms: int = 20_000
    batch: int = 32 << 10
    fall_behind_max: int = 256 << 20
    master_address: str = ""
    master_broker: str = ""
    start: int | None = 0
    retry_ms: int = 5000
    tls: bool = False
    allow: SlaveList = field(default_factory=SlaveList)
    listen: str = ""

    @classmethod
    def of(cls, other: Mapping[str, str], **changes: Any) -> HaSettings:
        """From the keys of a broker's properties file; None among `changes`: not given; `allow` may be text.

        Raises:
            InvalidArgument: a value that makes no sense.
        """
        fields: dict[str, Any] = {}
        for key, name in _NUMBERS.items():
            if key in other:
                try:
                    number = read_value(ValueKind.INT, other[key])
                except ValueError:
                    continue  # as in Apache
                if not isinstance(number, int) or number <= 0:
                    raise InvalidArgument(f"{key} = {number}: must be above 0")
                fields[name] = number
        fields["master_address"] = other.get("haMasterAddress", "")
        if fields["master_address"]:
            parse_address(fields["master_address"])
        fields["tls"] = _flag(other, "haTls")
        fields["allow"], fields["listen"] = other.get("haAllow", ""), other.get("haListen", "").strip()
        fields.update({name: value for name, value in changes.items() if value is not None})
        if isinstance(fields["allow"], str):
            fields["allow"] = parse_slave_list(fields["allow"])
        made = cls(**fields)
        if made.batch > MAX_BODY:
            raise InvalidArgument(f"haTransferBatchSize = {made.batch}: must be at most {MAX_BODY}")
        return made

    def with_master(self, broker: str | None) -> HaSettings:
        """Of a slave of that broker (`host:port`), whose replication service is one port above; None: as they are.

        Raises:
            InvalidArgument: no such address.
        """
        if broker is None:
            return self
        host, port = parse_address(broker)
        host = f"[{host}]" if ":" in host else host
        return replace(self, master_broker=broker, master_address=self.master_address or f"{host}:{port + 1}")


def _flag(other: Mapping[str, str], key: str) -> bool:
    """Raises InvalidArgument: what protects a log is not guessed."""
    text = other.get(key, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"{key} = {text[:100]!r}: must be true or false")
    return text == "true"
