"""JSON as Apache's fastjson writes it: integer keys without quotes (`{"t@g":{0:22,1:26}}`).

Reading: bare integer keys are put in quotes (outside of strings only), then the standard parser does the rest.
A string that never ends counts as one to the end of the text: else each of its quotes would start a search of its own.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from engine.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

_BARE_KEY = re.compile(r'("(?:[^"\\]|\\.)*+(?:"|\\?\Z))|([{,]\s*)(-?[0-9]+)(\s*:)', re.DOTALL)
_QUOTED_KEY = re.compile(r'"(-?[0-9]+)":|("(?:[^"\\]|\\.)*")')


def loads(text: str, twice: Callable[[str], None] | None = None) -> Any:
    """The value in `text`, integer keys as strings. `twice`: told of an object with a key twice (the last one counts).

    Raises:
        FormatError: it is no JSON, even so; `offset` is the character where it breaks.
    """

    def quoted(match: re.Match[str]) -> str:
        string, before, key, after = match.groups()
        return string if string is not None else f'{before}"{key}"{after}'

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs) and twice is not None:
            twice(Counter(key for key, _ in pairs).most_common(1)[0][0])
        return fields

    try:
        return json.loads(_BARE_KEY.sub(quoted, text), object_pairs_hook=None if twice is None else object_of)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}", offset=getattr(error, "pos", None)) from None


def dumps(value: Any) -> str:
    """The text of `value` as Apache's pretty format has it: keys that are integers without quotes, one entry a line."""

    def bare(match: re.Match[str]) -> str:
        key, string = match.groups()
        return f"{key}:" if string is None else string

    return _QUOTED_KEY.sub(bare, json.dumps(value, indent="\t", ensure_ascii=False, separators=(",", ":")))
