"""One question of a browser: who asks, what, and what the console has to answer with."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.files.disk import Disk
from engine.format.quantities import parse_size, parse_time
from engine.inspect.store.survey import survey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.client.admin.session import AdminSession
    from engine.client.client import ClusterClient
    from engine.config import StoreConfig
    from engine.console.web.context import Console
    from engine.console.web.sessions import Session
    from engine.inspect.store.survey import StoreFiles

T = TypeVar("T")
SURVEY_S = 30.0
"""How old a survey may be: a new segment is seen so late."""
LONGEST = 4096
"""Characters of a field."""


@dataclass(frozen=True, slots=True)
class Asked:
    """See the module. `fields`: of the address and of a form, by name."""

    console: Console
    session: Session
    fields: Mapping[str, str]

    # --- fields -----------------------------------------------------------------------------------------------------

    def text(self, name: str, default: str = "") -> str:
        """A field, without blanks around it. Raises InvalidArgument: it is too long."""
        value = self.fields.get(name, "").strip()
        if len(value) > LONGEST:
            raise InvalidArgument(f"{name} has {len(value)} characters, more than {LONGEST}")
        return value or default

    def needed(self, name: str) -> str:
        """A field. Raises InvalidArgument: it is not given."""
        value = self.text(name)
        if not value:
            raise InvalidArgument(f"{name} is required")
        return value

    def number(self, name: str, default: int, low: int = 0, high: int = (1 << 63) - 1) -> int:
        """A field. Raises InvalidArgument: it is no number, or out of its bounds."""
        text = self.text(name)
        if not text:
            return default
        try:
            value = int(text) if len(text) <= 20 else high + 1
        except ValueError:
            raise InvalidArgument(f"{name}: {text!r} is not a number") from None
        if not low <= value <= high:
            raise InvalidArgument(f"{name} must be from {low} to {high}")
        return value

    def offset(self, name: str) -> int | None:
        """A physical offset: bytes, or 1 GiB. Raises InvalidArgument."""
        text = self.text(name)
        return parse_size(text, name) if text else None

    def time(self, name: str) -> int | None:
        """A time, ms: ISO 8601, epoch ms, '2 hours ago'. Raises InvalidArgument."""
        text = self.text(name)
        return parse_time(text, name) if text else None

    def is_on(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.text(name) not in ("", "0", "false", "no")

    # --- what there is ----------------------------------------------------------------------------------------------

    @property
    def config(self) -> StoreConfig:
        """The store. Raises InvalidArgument: the console has none."""
        config = self.console.options.store
        if config is None:
            raise InvalidArgument("this console shows no store", hint="rstore console --store DIR")
        return config

    async def read(
        self,
        key: Hashable,
        work: Callable[[Disk, StoreConfig], T],
        *,
        fresh_s: float = 1.0,
        stale_s: float = 0.0,
    ) -> T:
        """What the engine reads of the store, beside the loop. Raises as `work`; TooBusy."""
        config = self.config
        return await self.console.reading.read(
            key, lambda: work(self.console.disk, config), fresh_s=fresh_s, stale_s=stale_s
        )

    async def files(self) -> StoreFiles:
        """The store's survey: files by name and length, at most SURVEY_S old. Raises as `read`."""
        return await self.read("survey", survey, fresh_s=2.0, stale_s=SURVEY_S)

    async def look(
        self, key: Hashable, work: Callable[[Disk, StoreFiles], T], *, fresh_s: float = 1.0, stale_s: float = 0.0
    ) -> T:
        """As `read`, of a store whose survey is known."""
        files, disk = await self.files(), self.console.disk
        return await self.console.reading.read(key, lambda: work(disk, files), fresh_s=fresh_s, stale_s=stale_s)

    async def client(self) -> ClusterClient:
        """The cluster's, with the session's account. Raises InvalidArgument: none is named; PeerLost."""
        return (await self.console.clusters.of(self.session.account)).client

    async def admin(self) -> AdminSession:
        """What asks the cluster, with the session's account. Raises as `client`."""
        return (await self.console.clusters.of(self.session.account)).admin
