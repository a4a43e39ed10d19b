"""What the client logs, on stderr: a line each, without what a terminal would act on, for it quotes peers."""

from __future__ import annotations

import logging
import sys

from rstore_cli.render import printable


class ClientWarnings(logging.Handler):
    """See the module."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        print(printable(record.getMessage()), file=sys.stderr)


def show_warnings() -> None:
    """From now on. Once is enough for a process."""
    for name in ("rstore", "asyncio"):
        logger = logging.getLogger(name)
        if not any(isinstance(one, ClientWarnings) for one in logger.handlers):
            logger.addHandler(ClientWarnings())
