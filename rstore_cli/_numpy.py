"""numpy without what nobody here uses of it: its BLAS makes a thread a core when it is loaded, which takes longer than
many a command (0.04 s of processor time on two cores)."""

from __future__ import annotations

import os
import sys

_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy, for a command that needs it. Programs that the command starts inherit nothing of this."""
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401 - who uses it has it then
    finally:
        del os.environ[_THREADS]
