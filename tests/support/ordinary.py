"""Root as an ordinary user: it reads and writes what the mode of a file lets its owner read and write, and no more."""

from __future__ import annotations

import os
import shutil

import pytest

_MAY_ALL = "-dac_override,-dac_read_search"


def ordinary() -> list[str]:
    """The words before a command that make it one of an ordinary user; none where it is one. Skips without setpriv."""
    if os.geteuid() != 0:
        return []
    found = shutil.which("setpriv")
    if found is None:
        pytest.skip("root may read everything, and there is no setpriv here to take that away (util-linux)")
    return [found, "--inh-caps=-all", f"--bounding-set={_MAY_ALL}"]
