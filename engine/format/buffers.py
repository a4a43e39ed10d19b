"""What the decoders take: anything that a struct can read from without a copy."""

from __future__ import annotations

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
