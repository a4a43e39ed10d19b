"""Signs requests of our own with an account of our ACL files, as clients of Apache's sign theirs.

Whoever hears a signature can send it again, for any request of the same fields, as it does not cover the request's
code; and Apache's name server asks for none. So a request is signed for a peer alone that has refused it unsigned, and
with an admin's account only where no other will do. Source: AclClientRPCHook#doBeforeRequest, AclUtils#calSignature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.acl.guard import DENIAL
from engine.wire.codes import ResponseCode
from engine.wire.signing import signed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.broker.acl.accounts import Account
    from engine.broker.acl.files import AclFiles
    from engine.wire.command import RemotingCommand


class Signer:
    """See the module. For the loop's thread alone.

    Args:
        files: have the accounts, as they are now.
        admin: whether what is asked needs an admin; else another account is preferred.
    """

    def __init__(self, files: AclFiles, *, admin: bool) -> None:
        self._files = files
        self._admin = admin

    @property
    def account(self) -> Account | None:
        """The first of the files that serves; None: there is none."""
        accounts = self._files.table.accounts.values()
        first = next((one for one in accounts if one.admin is self._admin), None)
        return first if self._admin or first is not None else next(iter(accounts), None)

    @property
    def access_key(self) -> str | None:
        """Of that account."""
        account = self.account
        return None if account is None else account.access_key

    @staticmethod
    def is_demanded(answer: RemotingCommand) -> bool:
        """Whether a request was refused for want of an account."""
        return answer.code == ResponseCode.SYSTEM_ERROR and (answer.remark or "").startswith(DENIAL)

    def signed(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """The fields with account and signature; as they are, where there is no account any more."""
        account = self.account
        if account is None:
            return dict(ext)
        return signed(ext, body, account.access_key, account.secret_key)
