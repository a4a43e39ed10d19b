"""Topics and groups that are asked for by name, held against what the stores of a job know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.inspect.store.known_names import KnownNames
from engine.pipeline.repositories import disk_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.pipeline.stores import StoreRef


def known_names(stores: Sequence[StoreRef]) -> KnownNames:
    """What any of the stores knows. Raises NotAStore, CannotRepair, StorageError."""
    return KnownNames.together(KnownNames.of_store(disk_of(store), store.config) for store in stores)


def demand_known(stores: Sequence[StoreRef], topics: Iterable[str] = (), groups: Iterable[str] = ()) -> None:
    """Raises InvalidArgument: none of the stores knows one of these names; the nearest is named."""
    wanted, of_groups = tuple(topics), tuple(groups)
    if wanted or of_groups:
        known = known_names(stores)
        for topic in wanted:
            known.demand_topic(topic)
        for group in of_groups:
            known.demand_group(group)
