"""A broker or name server that may demand an account for what it is asked (engine.broker.acl.signer)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.client.connection import RemotingClient
    from engine.wire.command import RemotingCommand


class RequestSigner(Protocol):
    """Who has accounts to sign with."""

    @property
    def access_key(self) -> str | None:
        """Of the account that signs; None: there is none."""

    def is_demanded(self, answer: RemotingCommand) -> bool:
        """Whether a request was refused for want of an account."""

    def signed(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """The fields with account and signature."""


class Peer:
    """One that is asked unsigned until it demands an account; from then on what it is asked is signed.

    Args:
        signer: None: we have no accounts.
        begins: called with the access key when signing begins.
    """

    def __init__(self, signer: RequestSigner | None, begins: Callable[[str], None]) -> None:
        self._signer = signer
        self._begins = begins
        self._signs = False

    async def ask(
        self, client: RemotingClient, code: int, ext: Mapping[str, str], body: bytes, timeout_s: float
    ) -> RemotingCommand:
        """The answer to a request by this connection to it. Raises StorageError."""
        signer = self._signer
        if signer is None:
            return await client.ask(code, ext, body, timeout_s=timeout_s)
        answer = await client.ask(code, signer.signed(ext, body) if self._signs else ext, body, timeout_s=timeout_s)
        account = signer.access_key
        if not self._signs and account is not None and signer.is_demanded(answer):
            self._signs = True
            self._begins(account)
            answer = await client.ask(code, signer.signed(ext, body), body, timeout_s=timeout_s)
        return answer
