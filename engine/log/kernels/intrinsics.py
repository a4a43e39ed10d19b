"""What kernels use below numba's arrays, by name: unaligned loads and stores, and the carry-less product.

`engine.log.kernels.loads`, `stores` and `fold` have them, and import numba: that happens when a kernel is compiled.
"""

from __future__ import annotations

import importlib
from typing import Any

from engine.log.kernels.jit import later

LEAST_ALIKE = 32
"""Bytes that `alike_below` compares at least."""


def _module(name: str) -> Any:
    return importlib.import_module(f"engine.log.kernels.{name}")


BASE64_FROM, BASE64_TO = 48, 64
"""Bytes that `base64` takes, and letters that it makes of them."""
little64: Any = later(lambda: _module("loads").little64)
big64: Any = later(lambda: _module("loads").big64)
big32: Any = later(lambda: _module("loads").big32)
soon_read: Any = later(lambda: _module("loads").soon_read)
soon_written: Any = later(lambda: _module("loads").soon_written)
equal64: Any = later(lambda: _module("loads").equal64)
below64: Any = later(lambda: _module("loads").below64)
first_bit: Any = later(lambda: _module("loads").first_bit)
put64: Any = later(lambda: _module("stores").put64)
put32: Any = later(lambda: _module("stores").put32)
copy: Any = later(lambda: _module("stores").copy)
put16: Any = later(lambda: _module("stores").put16)
base64: Any = later(lambda: _module("stores").base64)
fold: Any = later(lambda: _module("fold").fold)
remainder: Any = later(lambda: _module("fold").remainder)
carryless: Any = later(lambda: _module("fold").carryless)
folds: Any = later(lambda: _module("fold").folds_in_hardware())
"""bool: whether CRCs are folded by the processor's carry-less product."""


def any_of(mask: bytes) -> Any:
    """`engine.log.kernels.loads.any_of`."""
    return later(lambda: _module("loads").any_of(mask))


def alike_below(limit: int) -> Any:
    """`engine.log.kernels.loads.alike_below`."""
    return later(lambda: _module("loads").alike_below(limit))
