"""The natives of the log, each from when there is enough to do for it (`engine.log.kernels.native`).

Before that, and where no machine code can be kept, a caller does it the plain way.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

MANY: Final = 512
"""Objects after which a native is loaded: it takes some milliseconds, as long as some thousand objects made plainly."""


class FastLane:
    """A native, from when there is enough to do for it. Thread-safe.

    Args:
        module: that declares it.
        name: of the native.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name
        self._left = MANY
        self._builtin: Callable[..., Any] | None = None

    def after(self, count: int) -> Callable[..., Any] | None:
        """The builtin, for so many objects more; None: make them the plain way.

        Where no code is kept it is compiled by a thread beside: that takes about a second, once on a machine.
        """
        if self._builtin is None and self._left > 0:
            self._left -= count
            if self._left <= 0:
                self._begin()
        return self._builtin

    def _begin(self) -> None:
        try:
            if not self.load():
                threading.Thread(target=self._compile, name=f"numba: {self._name}").start()
        except (OSError, ImportError, RuntimeError):  # no descriptor to import it with, or no thread: later
            self._left = MANY

    def load(self) -> bool:
        """Load it where its code is kept; whether it is there now."""
        from engine.log.kernels.kept import has_some

        if self._builtin is None and has_some():  # else what declares natives imports numba, which no loop waits for
            self._left = 0
            self._builtin = self._native().kept()
        return self._builtin is not None

    def compiled(self) -> Callable[..., Any] | None:
        """The builtin, loaded or compiled now; None: this machine keeps no code. Raises ImportError: no numba."""
        self._left = 0
        self._builtin = self._native().compiled()
        return self._builtin

    def _native(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)

    def _compile(self) -> None:
        try:
            self.compiled()
        except Exception as error:  # noqa: BLE001 - the plain way goes on
            logging.getLogger("rstore.kernels").debug("numba does not take %s: %r", self._name, error)


MESSAGES: Final = FastLane("engine.log.kernels.objects", "messages")
PROPERTIES: Final = FastLane("engine.log.kernels.objects", "properties")
TEXT_PROPERTIES: Final = FastLane("engine.log.kernels.objects", "text_properties")
ITEMS: Final = FastLane("engine.log.kernels.objects", "items")
RUN: Final = FastLane("engine.log.kernels.whole_run", "run")
VIEWS: Final = FastLane("engine.log.kernels.whole_run", "views")
COLUMNS: Final = FastLane("engine.log.kernels.columns", "columns")
LAY: Final = FastLane("engine.log.kernels.lay", "lay")
JAVA_HASH: Final = FastLane("engine.log.kernels.lookup", "java_hash")
OFFSETS: Final = FastLane("engine.log.kernels.lookup", "offsets")
ASKED_FOR: Final = FastLane("engine.log.kernels.lookup", "asked_for")
CHAIN_END: Final = FastLane("engine.log.kernels.chain", "chain_end")
NATIVES: Final = (
    MESSAGES,
    PROPERTIES,
    TEXT_PROPERTIES,
    ITEMS,
    RUN,
    VIEWS,
    COLUMNS,
    LAY,
    JAVA_HASH,
    OFFSETS,
    ASKED_FOR,
    CHAIN_END,
)
