"""Commands of ours in texts: where each begins and where the sentence that it stands in continues.

Theory. A text names a command as a person types it: with its options, its arguments quoted for a shell. After `Next: `
and `more: ` it takes all words up to a bracket, comma or semicolon. In a sentence it ends where the sentence continues:
there each argument is quoted, an option, a number, a path or in capitals, or the text says what the command does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

PARTS = {
    "salvage": "scan list show export replay prune",
    "dump": "commitlog consumequeue index checkpoint timerlog timerwheel epoch dledger tiered compaction rocksdbstore "
    "config",
    "offsets": "list set",
    "config": "history restore",
    "admin": "cluster broker topic group consumer producer offset message dlq namesrv acl",
    "backup": "init create status list show check forget prune key",
    "drill": "list show run",
    "pipeline": "verify reindex export import stats diff lag grep",
    "completion": "bash zsh fish",
}
"""Commands of several parts."""
_PLAIN = (
    "init put get query recover undo plan-start truncate reindex expire rebuild-config verify-crc check doctor status "
    "flush serve replicate rewind promote send consume tail trace copy seal scrub heal restore console report top bench"
)
_GOES_ON = (
    "again and applies beside brings corrects counts creates deletes does ends finishes first for gives has in is "
    "it keeps lists lowers makes moves name names of or prunes puts reads rebuilds restores resumes saves says sets "
    "shows takes tells that then to undoes which without writes"
)
"""Words that a sentence continues with after a command."""
_ARGUMENT = r"""(?:'[^']*'|"[^"]*"|[^\s();,'"])+"""


def _any(words: str) -> str:
    return "|".join(words.split())


_NAME = rf"(?:{'|'.join(rf'{name}(?: (?:{_any(parts)}))?' for name, parts in PARTS.items())}|{_any(_PLAIN)})"
_END = r"(?=[\s();,.:'\"]|$)"
_COMMAND = re.compile(
    rf"(?:sudo -u \S+ )?\brstore(?:(?= -)(?: {_ARGUMENT})+?)? {_NAME}{_END}"
    rf"(?: (?!(?:{_any(_GOES_ON)}){_END}){_ARGUMENT})*"
)
_LED = re.compile(rf"(?<=(?:[Nn]ext|more): )(?:sudo -u \S+ )?rstore(?: {_ARGUMENT})+")


def places(text: str) -> Iterator[tuple[int, int]]:
    """Where each command begins and ends, in order."""
    at = 0
    while (match := _COMMAND.search(text, at)) is not None:
        led = _LED.match(text, match.start())
        begin, at = (match if led is None else led).span()
        yield begin, at - len(text[begin:at]) + len(text[begin:at].rstrip(".:"))


def printed_commands(text: str) -> Iterator[str]:
    """The commands of a text, in order."""
    return (text[begin:end] for begin, end in places(text))
