"""What differs between two states of a file in config/, in a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.inspect.store.config_shapes import FILTERS, GROUPS, TOPICS

if TYPE_CHECKING:
    from engine.inspect.store.config_files import ConfigTable

_NAMED = 3
_WORDS = {TOPICS: "topic", GROUPS: "group", FILTERS: "topic"}


def change_text(old: ConfigTable | None, new: ConfigTable) -> str:
    """From `old` (None: there was none) to `new`."""
    if not new.loads:
        return f"can't be read: {new.problem}"
    before = {} if old is None else _flat(old)
    after = _flat(new)
    word = _WORDS.get(new.name, "offset")
    parts = [
        _part("new", sorted(after.keys() - before.keys()), word),
        _part("gone", sorted(before.keys() - after.keys()), word),
        _part("changed", sorted(k for k in after.keys() & before.keys() if after[k] != before[k]), word),
    ]
    text = "; ".join(part for part in parts if part)
    return text or f"the same {len(after)} {word}s"


def _flat(table: ConfigTable) -> dict[str, object]:
    """Entries by name; offsets one by one."""
    flat: dict[str, object] = {}
    for entries in table.tables.values():
        for name, value in entries.items():
            if table.name in _WORDS or not isinstance(value, dict):
                flat[name] = value
            else:
                flat.update({f"{name}/{queue}": offset for queue, offset in value.items()})
    return flat


def _part(what: str, entries: list[str], word: str) -> str:
    if not entries:
        return ""
    more = ", …" if len(entries) > _NAMED else ""
    named = ", ".join(entry if len(entry) <= 60 else entry[:60] + "…" for entry in entries[:_NAMED])
    return f"{len(entries)} {word}{'' if len(entries) == 1 else 's'} {what} ({named}{more})"
