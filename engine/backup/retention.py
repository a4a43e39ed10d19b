"""Which snapshots stay: the newest of each hour, day, week, month; a store by itself."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.backup.repository import SnapshotName

_PERIODS = {"hourly": "%Y%m%d%H", "daily": "%Y%m%d", "weekly": "%G%V", "monthly": "%Y%m", "yearly": "%Y"}


@dataclass(frozen=True, slots=True)
class Keep:
    """How many snapshots stay. Periods are UTC's; one without a snapshot does not count."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))


def kept(snapshots: Sequence[SnapshotName], keep: Keep) -> set[str]:
    """The ids of those of one store's snapshots that stay. Raises InvalidArgument where none would."""
    if not keep:
        raise InvalidArgument("no rule keeps any snapshot", hint="--keep-last N, --keep-daily N …")
    newest_first = sorted(snapshots, key=lambda one: one.name, reverse=True)
    ids = {one.snapshot_id for one in newest_first[: keep.last]}
    for rule, form in _PERIODS.items():
        ids |= set(_newest_of_each(newest_first, form, getattr(keep, rule)))
    return ids


def _newest_of_each(newest_first: Iterable[SnapshotName], form: str, count: int) -> list[str]:
    newest: dict[str, str] = {}
    for one in newest_first:
        period = datetime.fromtimestamp(one.time_ms / 1000, UTC).strftime(form)
        if period not in newest:
            if len(newest) == count:
                break
            newest[period] = one.snapshot_id
    return list(newest.values())
