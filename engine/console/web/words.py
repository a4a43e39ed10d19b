"""The console's words in English and Chinese: English text is the key, `words.zh.json` has the other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import orjson

LANGUAGES = ("en", "zh")
CATALOGUE = Path(__file__).parent.parent / "words.zh.json"


@cache
def chinese() -> Mapping[str, str]:
    """English to Chinese."""
    words: dict[str, str] = orjson.loads(CATALOGUE.read_bytes())
    return words


def translated(text: str, language: str) -> str:
    """A text of the console in a language; as it is where the catalogue lacks it: sentences of the engine."""
    return chinese().get(text, text) if language == "zh" and text else text


def preferred(header: str) -> str:
    """The language of an Accept-Language header that the console has: the first that is named."""
    for part in header.split(","):
        tag = part.partition(";")[0].strip().lower()[:2]
        if tag in LANGUAGES:
            return tag
    return LANGUAGES[0]
