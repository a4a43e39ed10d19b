"""A line for who waits while kernels are compiled, once on a machine."""

from __future__ import annotations

import logging
import sys

from rstore_cli.screen import is_terminal

_LOGGER = "rstore.kernels"  # engine.log.kernels.jit.LOGGER, which would bring numpy, and may bring numba
LINE = "Compiling kernels for long logs, once on this machine (about 10 s) …"


class _Told(logging.Handler):
    """Prints the line when the first kernel is about to be compiled, and no other."""

    def __init__(self) -> None:
        super().__init__()
        self._done = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print it, where somebody looks."""
        if not self._done and is_terminal(sys.stderr):
            print(LINE, file=sys.stderr, flush=True)
        self._done = True


def tell_of_compiling(*, quiet: bool) -> None:
    """From here on the line is printed when it is time; with `quiet` it never is."""
    logger = logging.getLogger(_LOGGER)
    for old in [handler for handler in logger.handlers if isinstance(handler, _Told)]:
        logger.removeHandler(old)
    if not quiet:
        logger.addHandler(_Told())
        logger.setLevel(logging.INFO)
