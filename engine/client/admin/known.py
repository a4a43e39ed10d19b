"""Names that a cluster does not know: the error, with the nearest ones. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import InvalidArgument
from engine.format.nearest import did_you_mean, visible

if TYPE_CHECKING:
    from collections.abc import Collection

_FEW = 8


def demand_known(what: str, name: str, known: Collection[str]) -> None:
    """Raises InvalidArgument: the cluster has no `what` of this name; it names the nearest ones, or which there are."""
    if name in known:
        return
    hint = did_you_mean(name, known)
    if not hint:
        some = sorted(known)
        more = f" and {len(some) - _FEW} more" if len(some) > _FEW else ""
        hint = f"there are {', '.join(some[:_FEW])}{more}" if some else f"there is no {what}"
    raise InvalidArgument(f"no {what} {visible(name)} in the cluster", hint=hint)
