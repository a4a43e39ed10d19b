"""Damage to a copy of a store, in the ops of the golden cases: zero, write, xor, delete, create, resize, copy.

The interop tests run the same ops before Apache opens the copy, so there is one reader of them: tests.compat.mutate.
"""

from __future__ import annotations

from tests.compat.mutate import Misfit, Op, apply

__all__ = ["Misfit", "Op", "apply"]
