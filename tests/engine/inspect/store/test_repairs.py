"""What a manifest may name: `is_below` at a glance, against the definition by parts."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.inspect.store.repairs import is_below


def by_parts(path: str) -> bool:
    if not path or "\0" in path or os.path.isabs(path):
        return False
    os.fsencode(path)
    return not {"", ".", ".."} & set(path.split(os.sep))


@given(st.one_of(st.text("a0.%/-_\n\0~é ", max_size=12), st.text(max_size=8)))
@example("consumequeue/%RETRY%g/0/00000000000000000000")
@example("a/../b")
@example("a/.")
@example("a/..b")
@example("a\n")
@example("a//b")
@example("a/")
@example("-")
def test_a_name_below_the_store(path: str) -> None:
    try:
        expected = by_parts(path)
    except UnicodeEncodeError:
        with pytest.raises(UnicodeEncodeError):
            is_below(path)
        return
    assert is_below(path) is expected


@pytest.mark.parametrize("path", [None, 1, b"a", ["a"]])
def test_what_is_no_text_is_none(path: object) -> None:
    assert not is_below(path)
