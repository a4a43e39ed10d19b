"""The broker's settings while it runs: read by GET_BROKER_CONFIG, changed by UPDATE_BROKER_CONFIG, kept in the -c file.

Keys are Apache's. A change of a key that is known is written into the properties file that the daemon was started
with, whose other lines stay as they are; then it is applied, where a running broker can. What can't be is in force from
the next start on, and the log says so. Source: Configuration, AdminBrokerProcessor#updateBrokerConfig.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
import os
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.settings.broker_settings import FIELDS, KEYS, BrokerSettings, demand_readable
from engine.broker.settings.settings_log import tell_settings
from engine.broker.tables.config_file import DataVersion
from engine.broker_conf import in_force
from engine.broker_conf.values import ENCODING, as_text
from engine.config import NOT_SETTINGS, StoreConfig, apache_key, parse
from engine.errors import InvalidArgument
from engine.store import RECONFIGURABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.ha.role import Role
    from engine.broker.requests.later import Later
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
_OURS = KEYS | {apache_key(field.name) for field in dataclasses.fields(StoreConfig)}
_SECRET = "Password"
"""What keys end in that nobody is told: GET_BROKER_CONFIG is anybody's. Apache has them outside of its broker.conf."""
_SHOWN_AS = {"enableBatchPush": "isEnableBatchPush"}
"""Keys that Apache tells under the names of its fields, which it reads under those of their setters."""


class LiveConfig:
    """See the module. For the loop's thread alone.

    Args:
        store, settings: what is read and changed.
        role: says where a master's service is.
        later: runs what writes the file.
        file: the properties file that it was started with, None without one.
        log: gets what is not in force at once.
    """

    def __init__(
        self,
        *,
        store: MessageStore,
        settings: CurrentSettings,
        role: Role,
        later: Later,
        now_ms: Callable[[], int],
        file: str | None,
        log: logging.Logger,
    ) -> None:
        self._store = store
        self._settings = settings
        self._role = role
        self._later = later
        self._turn = asyncio.Lock()
        self._now_ms = now_ms
        self._file = file
        self._log = log
        self.version = DataVersion(now_ms())
        if file is not None:
            tell_settings(file, log)
        self._texts = {
            **_of_apache(store.config.other),
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

    async def update(self, changes: Mapping[str, str]) -> None:
        """Change the settings; keys that are none are left out, and the log says so.

        They are in force when the file has them; it is written beside the loop, one change after another.

        Raises:
            InvalidArgument: a value that makes no sense; nothing is changed. StorageError: the file can't be written;
            nothing is changed.
        """
        settable = self._texts.keys() - _SHOWN_AS.values()
        known = {key: value.strip() for key, value in changes.items() if key in settable}
        for key in changes.keys() - known.keys():
            self._log.warning("%s is not a setting of this broker; not changed", key)
        async with self._turn:
            self._parsed(known)
            if known:
                await self._later.write(lambda: self._write(known))
            store, settings = self._parsed(known)  # anew: others may have been changed meanwhile
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
        if self._file is None:
            self._log.warning("%s is not saved: there is no -c file", ", ".join(known))
            return
        import javaproperties

        disk, path = self._store.disk.beneath(None), os.path.realpath(self._file)
        properties = javaproperties.PropertiesFile.loads(disk.read_file(path).decode(ENCODING))
        for key, value in known.items():
            properties[key] = value
        disk.write_file_atomically(path, properties.dumps().encode(ENCODING))

    def _apply(self, known: Mapping[str, str], store: StoreConfig, settings: BrokerSettings) -> None:
        for key, value in known.items():
            if key in LIVE or key in _STORE_LIVE:
                self._log.info("%s = %s is in force", key, value)
            elif key in _OURS:
                self._log.warning("%s = %s takes effect at the next start", key, value)
            else:
                self._log.warning("%s = %s has no effect here: only Apache's broker has this setting", key, value)
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


def _of_apache(other: Mapping[str, str]) -> dict[str, str]:
    """Each key of Apache's four objects with its value after a start, but for those that are null."""
    settings = in_force.started(in_force.of_file(other))
    return {_SHOWN_AS.get(key, key): as_text(value) for (_, key), value in settings.items() if value is not None}


def _as_texts(config: StoreConfig) -> dict[str, str]:
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {
        apache_key(name): _text(value)
        for name, value in fields.items()
        if name not in NOT_SETTINGS and value is not None
    }


def _told_of_broker(settings: BrokerSettings) -> dict[str, str]:
    told = {key: _text(value) for key, name in FIELDS.items() if (value := getattr(settings, name)) is not None}
    return told | {"brokerIP2": settings.broker_ip2 or settings.broker_ip1}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value if isinstance(value, enum.Enum) else value)
