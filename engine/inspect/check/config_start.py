"""What a broker that starts now makes of config/: where it stops, and what it starts without.

BrokerController#initialize reads topics, offsets, groups and filters before it opens the store, and stops when one of
them can't be read and its .bak can't either. delayOffset.json is read after the store's recovery
(DefaultMessageStore#load), with the same end: by then the log was cut where Apache would cut it. A broker that stops so
writes the offsets that it has, none, over the file (BrokerController#shutdown): its broken bytes are in the .bak then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import names
from engine.inspect.check.config import offsets_file
from engine.inspect.store.config_files import ConfigFileState, Fate, directory_of, fate, present_in, read_table
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS, FILTERS, GROUPS, LMQ_CONSUMERS, TOPICS

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk

_WITHOUT = {
    TOPICS: "consumers find no topic until it is created again",
    CONSUMERS: "groups start where their clients choose, by default at the end of each queue",
    LMQ_CONSUMERS: "groups start where their clients choose, by default at the end of each queue",
    GROUPS: "groups are created again with default settings",
    DELAYS: "every delayed message that is still in the log is delivered again",
    FILTERS: "consumers register their filters again",
}


@dataclass(frozen=True, slots=True)
class ConfigStart:
    """One sentence each. `stops`: why no store is opened; `stops_late`: why the start fails after its recovery;
    `without`: what the broker starts without, or with an older state."""

    stops: tuple[str, ...] = ()
    stops_late: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """All of it, the worst first."""
        return (*self.stops, *self.stops_late, *self.without)


def config_start(disk: Disk, config: StoreConfig, root: str) -> ConfigStart:
    """Look at the files that are there. Raises StorageError."""
    directory = directory_of(root)
    stops: list[str] = []
    late: list[str] = []
    without: list[str] = []
    for name in (TOPICS, offsets_file(config, present_in(disk, directory)), GROUPS, FILTERS, DELAYS):
        file, backup = read_table(disk, directory, name), read_table(disk, directory, name, backup=True)
        does, place = fate(file, backup), f"{names.CONFIG}/{name}"
        if does is Fate.FAILS:
            problem = f"{place}: {file.problem}; its .bak: {backup.problem}: a broker does not start"
            problem += " and leaves an empty table" if name in (CONSUMERS, LMQ_CONSUMERS) else ""
            (late if name == DELAYS else stops).append(problem)
        elif does is Fate.BACKUP and file.state is not ConfigFileState.MISSING:
            without.append(f"{place}: {file.problem}: a broker reads its .bak, which is older")
        elif not file.state.is_sound and file.state is not ConfigFileState.MISSING:
            without.append(f"{place}: {file.problem}: a broker starts without it: {_WITHOUT[name]}")
    return ConfigStart(tuple(stops), tuple(late), tuple(without))
