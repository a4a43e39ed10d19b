"""The broker's settings as they hold now: an administrator may change some of them while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.settings.broker_settings import BrokerSettings


class CurrentSettings:
    """See the module. For the loop's thread alone.

    Attributes:
        now: the settings. To be asked for anew, and not kept.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.now = settings
        self._listeners: list[Callable[[BrokerSettings, BrokerSettings], None]] = []

    def when_changed(self, tell: Callable[[BrokerSettings, BrokerSettings], None]) -> None:
        """Have `tell` called with the settings before and after each change."""
        self._listeners.append(tell)

    def change(self, settings: BrokerSettings) -> None:
        """Go by these from now on, as far as that is possible: `engine.broker.settings.live_config.LIVE`."""
        before, self.now = self.now, settings
        for tell in self._listeners:
            tell(before, settings)
