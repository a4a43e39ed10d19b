"""The compressed body of a registration on literal bytes, and what is refused."""

from __future__ import annotations

import zlib

import pytest

from engine.errors import FormatError
from engine.wire.registration import LARGEST, RegistrationTexts, compress, decompress

LITERAL = bytes.fromhex(
    "00000002 7b7d"  # {}
    "00000002"
    "0000000d 5420342034203620 53 494e474c"  # T 4 4 6 SINGL
    "00000001 55"
    "00000002 5b5d"  # []
)


def test_literal_bytes() -> None:
    texts = RegistrationTexts(b"{}", ("T 4 4 6 SINGL", "U"), b"[]")
    assert decompress(zlib.compress(LITERAL)) == texts
    assert zlib.decompress(compress(texts.data_version, texts.topics, texts.filter_servers)) == LITERAL


@pytest.mark.parametrize("end", range(len(LITERAL)))
def test_an_incomplete_body_is_refused(end: int) -> None:
    with pytest.raises(FormatError, match=r"broker registration is incomplete|invalid length"):
        decompress(zlib.compress(LITERAL[:end]))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"no zlib", "malformed broker registration"),
        (zlib.compress(LITERAL)[:-1], "broker registration is incomplete"),
        (zlib.compress(bytes(LARGEST + 1), 9), f"more than {LARGEST} bytes"),
        (zlib.compress(b"\xff\xff\xff\xff"), "invalid length -1"),
        (zlib.compress(b"\x7f\xff\xff\xff"), "invalid length 2147483647"),
    ],
)
def test_what_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        decompress(body)
