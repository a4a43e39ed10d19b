"""JSON as Apache's fastjson writes it: integer keys without quotes (`{"t@g":{0:22,1:26}}`).

Reading: bare integer keys are put in quotes (outside of strings only), then the standard parser does the rest.
A string that never ends counts as one to the end of the text: else each of its quotes would start a search of its own.
"""

from __future__ import annotations

import json
import re
from typing import Any

from engine.errors import FormatError

_BARE_KEY = re.compile(r'("(?:[^"\\]|\\.)*+(?:"|\\?\Z))|([{,]\s*)(-?[0-9]+)(\s*:)', re.DOTALL)
_QUOTED_KEY = re.compile(r'"(-?[0-9]+)":|("(?:[^"\\]|\\.)*")')


def loads(text: str) -> Any:
    """The value in `text`, integer keys as strings.

    Raises:
        FormatError: it is no JSON, even so; `offset` is the character where it breaks.
    """

    def quoted(match: re.Match[str]) -> str:
        string, before, key, after = match.groups()
        return string if string is not None else f'{before}"{key}"{after}'

    try:
        return json.loads(_BARE_KEY.sub(quoted, text))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no JSON: {error}", offset=getattr(error, "pos", None)) from None


def dumps(value: Any) -> str:
    """The text of `value` as Apache's pretty format has it: keys that are integers without quotes, one entry a line."""

    def bare(match: re.Match[str]) -> str:
        key, string = match.groups()
        return f"{key}:" if string is None else string

    return _QUOTED_KEY.sub(bare, json.dumps(value, indent="\t", ensure_ascii=False, separators=(",", ":")))
