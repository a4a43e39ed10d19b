"""The body of a batch send as columns: where its messages lie, found by a kernel once those of puts are loaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from engine.format.columns import MessageColumns

if TYPE_CHECKING:
    from engine.format.buffers import Buffer


def columns_of(frame: Buffer) -> MessageColumns:
    """The messages in the body of a batch send, without a copy.

    Raises:
        FormatError: as `engine.format.batch.decode`.
    """
    if "engine.log.kernels.encode" in sys.modules:
        from engine.log.kernels.frame import table_of

        table = table_of(frame)
        if table is not None:
            return MessageColumns.of_places(frame, table)
    return MessageColumns.of_frame(frame)  # which says what is wrong with it
