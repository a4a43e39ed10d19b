"""Every key that a 4.9.8 broker reads from its file, by name: the four tables together."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from engine.broker_conf import broker_keys, network_keys, store_keys
from engine.broker_conf.keys import Key
from engine.broker_conf.values import Value


@functools.cache
def all_keys() -> Mapping[str, tuple[Key, ...]]:
    """By name; the broker's own come first, then the server's, the client's and the store's, as they are set."""
    keys: dict[str, tuple[Key, ...]] = {}
    for key in (*broker_keys.KEYS, *network_keys.SERVER_KEYS, *network_keys.CLIENT_KEYS, *store_keys.KEYS):
        keys[key.name] = (*keys.get(key.name, ()), key)
    return keys


def is_default(name: str, value: Value) -> bool:
    """Whether the key's default is this value."""
    return any(key.default == value for key in all_keys()[name])
