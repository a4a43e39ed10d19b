"""The tree of errors: drawn as it is, one code each, one line each."""

from __future__ import annotations

import errno
import re

import pytest

from engine import errors
from engine.errors import DiskFull, RStoreError, StorageError, from_os_error

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RStoreError)]


def test_the_drawing_is_complete() -> None:
    drawn = {
        name: (code, int(exit_code))
        for name, code, exit_code in re.findall(r"[├└]── (\w+) +([\w-]+) +([0-9])", errors.__doc__ or "")
    }
    assert drawn == {kind.__name__: (kind.code, kind.exit_code) for kind in KINDS if kind is not RStoreError}


def test_codes_are_distinct() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)


def test_text_is_one_line_with_place_and_hint() -> None:
    assert str(RStoreError("it broke")) == "it broke"
    assert str(RStoreError("it broke", path="/a", offset=5, hint="mend it")) == "it broke: /a at 5 (mend it)"
    assert str(RStoreError("it broke", offset=0)) == "it broke: at 0"


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, StorageError), (errno.EACCES, StorageError)],
)
def test_what_the_system_says(number: int, kind: type[StorageError]) -> None:
    found = from_os_error(OSError(number, "Said So"), "writing", "/a", 7)
    assert type(found) is kind
    assert str(found).startswith("writing: said so: /a at 7")
    assert (found.hint is None) == (number == errno.EIO)
