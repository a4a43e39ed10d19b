"""The name service's settings: all keys that Apache's has, told and changed over the wire.

One of them does something here: orderMessageEnable. Others are told as they were changed, and the log says that nothing
goes by them. Source: NamesrvConfig, NettyServerConfig, Configuration (4.9.8).
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.broker_conf.network_keys import SERVER_KEYS
from engine.broker_conf.values import ValueKind, as_text, demand

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

    from engine.broker.settings.current_settings import CurrentSettings

ORDER = "orderMessageEnable"
BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""Keys that Apache's name server refuses to change, and its home, which is a path."""
_BOOLEANS = (ORDER, "clusterTest")
_KINDS = {key.name: key.kind for key in SERVER_KEYS} | dict.fromkeys(_BOOLEANS, ValueKind.BOOLEAN)


class NameConfig:
    """See the module. For the loop's thread alone.

    Args:
        settings: of the broker, which has orderMessageEnable.
        kv_file: where key-value pairs are kept.
        log: gets what changed, and what did not.
    """

    def __init__(self, settings: CurrentSettings, kv_file: str, log: logging.Logger) -> None:
        self._settings = settings
        self._log = log
        now = settings.now
        self._texts = {
            **{key.name: as_text(key.default) for key in SERVER_KEYS},
            "listenPort": as_text(now.name_service_port),
            "serverChannelMaxIdleTimeSeconds": str(now.idle_s),
            "rocketmqHome": now.rocketmq_home or os.environ.get("ROCKETMQ_HOME", ""),
            "kvConfigPath": kv_file,
            "configStorePath": now.config_file or "",
            "productEnvName": "center",
            "clusterTest": "false",
            "configBlackList": "configBlackList;configStorePath;kvConfigPath",
        }

    def lines(self) -> str:
        """All keys, as lines of a properties file."""
        import javaproperties

        texts = {**self._texts, ORDER: as_text(self._settings.now.order_message_enable)}
        return javaproperties.dumps(texts, timestamp=False, sort_keys=True, ensure_ascii=False)

    def update(self, changes: Mapping[str, str]) -> None:
        """Change what can be, until the daemon ends; the log says what became of each key.

        Raises:
            InvalidArgument: a value that Apache's name server can't read; nothing is changed.
        """
        known = {key: value.strip() for key, value in changes.items() if key in self._texts or key == ORDER}
        for key, value in known.items():
            demand(key, _KINDS.get(key, ValueKind.STRING), value)
        for key in changes.keys() - known.keys():
            self._log.warning("%s is not a setting of this name server; not changed", key)
        for key, value in known.items():
            if key == ORDER:
                order = value.lower() == "true"
                self._settings.change(replace(self._settings.now, order_message_enable=order))
                self._log.info("%s = %s is in force until the daemon stops", key, value)
            else:
                self._texts[key] = value
                self._log.warning("%s = %s has no effect here: only Apache's name server has this setting", key, value)
