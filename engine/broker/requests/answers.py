"""An answer that ends a request early, as an exception: what a handler answers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import Shortage
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.errors import RStoreError


class Answer(Exception):
    """Response code, remark and fields."""

    def __init__(self, code: int, remark: str | None = None, ext: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = int(code)
        self.remark = remark
        self.ext = ext


class BadField(Answer):
    """A header's field that is missing or makes no sense: Java's decoder throws, so the answer has no fields."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


def code_of(error: RStoreError) -> ResponseCode:
    """What passes by itself (no space, no descriptors) a client may try again, here or elsewhere."""
    short = isinstance(error, Shortage)
    return ResponseCode.SERVICE_NOT_AVAILABLE if short else ResponseCode.SYSTEM_ERROR
