"""HOST:PORT as it is read wherever it is written: settings, arguments, what a name server says."""

from __future__ import annotations

import pytest

from engine.errors import InvalidArgument
from engine.wire.address import parse_address


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:10911", ("127.0.0.1", 10911)),
        ("[::1]:1", ("::1", 1)),
        ("[fe80::1%eth0]:65535", ("fe80::1%eth0", 65535)),
        ("bröker.example:00080", ("bröker.example", 80)),
    ],
)
def test_what_is_an_address(text: str, found: tuple[str, int]) -> None:
    assert parse_address(text) == found


@pytest.mark.parametrize(
    "text",
    [
        *("", "here", ":1", "[]:1", "a:", "a:x", "a:-1", "a:0", "a:65536", "a:" + "1" * 5000),
        *("a..b:1", "x" * 64 + ":1", "a\0b:1", "\udc80:1", "a b:1", "http://a:1", "a:\u0661", "a." * 200 + "b:1"),
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not HOST:PORT"):
        parse_address(text)
