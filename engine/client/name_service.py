"""Several name servers as one: the one that answered last is asked first, another where it is away or does not know.

A name server that was started again knows a broker once that registers anew, up to 30 s later. Apache's client asks the
one that it is connected to, and no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.client.routes import parse_route
from engine.errors import InvalidArgument, NoRoute, PeerLost, RefusedByBroker
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine.client.peers import Peers
    from engine.client.routes import TopicRoute
    from engine.wire.command import RemotingCommand


class NameService:
    """See the module. For one loop.

    Args:
        addresses: `host:port` each.

    Raises:
        InvalidArgument: there is none.
    """

    def __init__(self, peers: Peers, addresses: Sequence[str]) -> None:
        if not addresses:
            raise InvalidArgument("a client needs the address of a name server", hint="such as 127.0.0.1:9876")
        self._peers = peers
        self._addresses = list(addresses)

    async def local_ip(self) -> str:
        """Our own address as a name server sees it. Raises PeerLost: none is there."""
        problems = []
        for address in self._addresses:
            try:
                local = (await self._peers.to(address)).local
            except PeerLost as error:
                problems.append(error.message)
            else:
                return local[0] if local else "127.0.0.1"
        raise self._away(problems)

    async def ask(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        knows: Callable[[RemotingCommand], bool] = lambda _: True,
    ) -> tuple[RemotingCommand, str]:
        """The answer of one of them, and its address.

        Args:
            knows: whether an answer is one of a name server that knows; the others are asked, too, where it is not.

        Raises:
            PeerLost: none answers. RefusedByBroker: who answers is no name server.
        """
        problems = []
        ignorant: tuple[RemotingCommand, str] | None = None
        other: RefusedByBroker | None = None
        for address in list(self._addresses):
            try:
                answer = await self._peers.ask(address, code, ext, body)
            except PeerLost as error:
                problems.append(error.message)
            else:
                if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    other = other or _no_name_server(answer, address)
                elif knows(answer):
                    return answer, address
                else:
                    ignorant = ignorant or (answer, address)
            self._addresses.remove(address)  # to the end: the next request begins with another
            self._addresses.append(address)
        if ignorant is not None:
            return ignorant
        if other is not None:
            raise other
        raise self._away(problems)

    async def route(self, topic: str) -> TopicRoute:
        """Where a topic's queues are, by its name on the wire.

        Raises:
            NoRoute: no broker serves it. PeerLost: no name server answers. RefusedByBroker. FormatError.
        """
        answer, address = await self.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic},
            knows=lambda answer: answer.code != ResponseCode.TOPIC_NOT_EXIST,
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(f"no broker serves topic {topic}", hint="the name servers have no route of it")
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedByBroker.of(answer.code, answer.remark, address)
        return parse_route(answer.body, f"route of topic {topic} of {address}")

    def _away(self, problems: list[str]) -> PeerLost:
        return PeerLost("no name server answers: " + "; ".join(problems))


def _no_name_server(answer: RemotingCommand, address: str) -> RefusedByBroker:
    error = RefusedByBroker.of(answer.code, answer.remark, address)
    error.hint = "it answers as a broker does: name servers have a port of their own, 9876 by default"
    return error
