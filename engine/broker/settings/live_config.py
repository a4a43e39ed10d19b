"""The broker's settings while it runs: read by GET_BROKER_CONFIG, changed by UPDATE_BROKER_CONFIG, kept in the -c file.

Keys are Apache's. A change of a key that is known is written into the properties file that the daemon was started
with, whose other lines stay as they are; then it is applied, where a running broker can. What can't be is in force from
the next start on, and the log says so. Source: Configuration, AdminBrokerProcessor#updateBrokerConfig.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import os
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.settings.broker_settings import FIELDS, BrokerSettings, demand_readable
from engine.broker.settings.settings_log import tell_settings
from engine.broker.tables.config_file import DataVersion
from engine.broker_conf.values import ENCODING
from engine.config import NOT_SETTINGS, StoreConfig, apache_key, parse
from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.store import RECONFIGURABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.ha.role import Role
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.store import MessageStore


BLACK_LIST = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})
"""Keys that nobody may change; `configBlackList` (`;`-separated) adds others."""
LIVE = frozenset(
    {
        "brokerPermission",
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "longPollingEnable",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "enablePropertyFilter",
        "transactionTimeOut",
        "transactionCheckMax",
        "transactionCheckInterval",
        "flushConsumerOffsetInterval",
        "storeReplyMessageEnable",
        "orderMessageEnable",
    }
)
"""The broker's keys that count at once; of the store's, `engine.store.RECONFIGURABLE` do."""
_STORE_LIVE = frozenset(map(apache_key, RECONFIGURABLE))
_SECRET = "Password"
"""What keys end in that nobody is told: GET_BROKER_CONFIG is anybody's. Apache has them outside of its broker.conf."""
_ALWAYS = {
    "filterServerNums": "0",
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "traceOn": "true",
    "traceTopicEnable": "false",
    "useTLS": "false",
}
"""What mqadmin's exportConfigs demands of a broker; where the broker has no such setting, this is how it behaves."""


class LiveConfig:
    """See the module. For the loop's thread alone.

    Args:
        store, settings: what is read and changed.
        role: says where a master's service is.
        file: the properties file that it was started with, None without one.
        log: gets what is not in force at once.
    """

    def __init__(
        self,
        *,
        store: MessageStore,
        settings: CurrentSettings,
        role: Role,
        now_ms: Callable[[], int],
        file: str | None,
        log: logging.Logger,
    ) -> None:
        self._store = store
        self._settings = settings
        self._role = role
        self._now_ms = now_ms
        self._file = file
        self._log = log
        self.version = DataVersion(now_ms())
        if file is not None:
            tell_settings(file, log)
        self._texts = {
            **_ALWAYS,
            **{key: text for key, text in store.config.other.items() if _is_public(key, text)},
            **_as_texts(store.config),
            **_told_of_broker(settings.now),
        }

    @property
    def version_json(self) -> str:
        """DataVersion, as text."""
        return orjson.dumps(self.version.to_json()).decode()

    def text(self) -> str:
        """All keys that there are, as lines of a properties file."""
        import javaproperties

        lines, service = self._texts, self._role.address
        if service and not self._role.is_slave:
            lines = lines | {"haListenPort": service.rpartition(":")[2]}  # where it really is
        return javaproperties.dumps(lines, timestamp=False, sort_keys=True, ensure_ascii=False)

    def is_forbidden(self, changes: Mapping[str, str]) -> bool:
        """Whether one of the keys may not be changed."""
        more = self._texts.get("configBlackList", "").split(";")
        return not changes.keys().isdisjoint(BLACK_LIST | set(more))

    def update(self, changes: Mapping[str, str]) -> None:
        """Change the settings; keys that are none are left out, and the log says so.

        Raises:
            InvalidArgument: a value that makes no sense; nothing is changed. StorageError: the file can't be written;
            nothing is changed.
        """
        known = {key: value.strip() for key, value in changes.items() if key in self._texts}
        for key in changes.keys() - known.keys():
            self._log.warning("%s is not a setting of this broker; not changed", key)
        store, settings = self._parsed(known)
        self._write(known)
        self._texts.update(known)
        self._apply(known, store, settings)
        self.version.next(self._now_ms())

    def _parsed(self, known: Mapping[str, str]) -> tuple[StoreConfig, BrokerSettings]:
        """Both kinds of settings with what is live of the changes; all of the changes are looked at.

        Raises InvalidArgument.
        """
        import javaproperties

        demand_readable(known)
        parse(javaproperties.dumps(dict(known), timestamp=False), self._store.config)
        BrokerSettings.of(known)
        live = {key: value for key, value in known.items() if key in _STORE_LIVE}
        store = parse(javaproperties.dumps(live, timestamp=False), self._store.config)
        mine = {key: value for key, value in known.items() if key in LIVE}
        fresh = BrokerSettings.of(mine)
        names = {FIELDS[key] for key in mine}
        return store, dataclasses.replace(self._settings.now, **{name: getattr(fresh, name) for name in names})

    def _write(self, known: Mapping[str, str]) -> None:
        if not known:
            return
        if self._file is None:
            self._log.warning("%s is not saved: there is no -c file", ", ".join(known))
            return
        import javaproperties

        disk, path = Disk(), os.path.realpath(self._file)
        properties = javaproperties.PropertiesFile.loads(disk.read_file(path).decode(ENCODING))
        for key, value in known.items():
            properties[key] = value
        disk.write_file_atomically(path, properties.dumps().encode(ENCODING))

    def _apply(self, known: Mapping[str, str], store: StoreConfig, settings: BrokerSettings) -> None:
        for key, value in known.items():
            if key in LIVE or key in _STORE_LIVE:
                self._log.info("%s = %s is in force", key, value)
            else:
                self._log.warning("%s = %s takes effect at the next start", key, value)
        if known.keys() & _STORE_LIVE:
            self._store.reconfigure(store)
        if known.keys() & LIVE:
            self._settings.change(settings)


def _is_public(key: str, text: str) -> bool:
    """Neither a password, nor what a broker can't read and has its default for."""
    if key.endswith(_SECRET):
        return False
    try:
        demand_readable({key: text})
    except InvalidArgument:
        return False
    return True


def _as_texts(config: StoreConfig) -> dict[str, str]:
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {
        apache_key(name): _text(value)
        for name, value in fields.items()
        if name not in NOT_SETTINGS and value is not None
    }


def _told_of_broker(settings: BrokerSettings) -> dict[str, str]:
    return {key: _text(value) for key, name in FIELDS.items() if (value := getattr(settings, name)) is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value if isinstance(value, enum.Enum) else value)
