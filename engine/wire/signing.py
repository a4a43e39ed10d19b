"""The signature of a request, by which Apache's ACL knows its account. Pure.

Source: AclUtils#combineRequestContent, AclSigner#calSignature, AclClientRPCHook#doBeforeRequest.
"""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


def signature(ext: Mapping[str, str], body: bytes | memoryview, secret: bytes, *, query_flag: bool = False) -> str:
    """What a client that knows the secret writes into Signature: HMAC-SHA1 over the values of the fields, sorted by
    their names, and the body; base64. `query_flag`: with _UNIQUE_KEY_QUERY among them.
    """
    skipped = (SIGNATURE,) if query_flag else (SIGNATURE, UNIQUE_KEY_QUERY)
    content = "".join([ext[name] for name in sorted(ext) if name not in skipped])
    made = hmac.digest(secret, b"".join((content.encode("utf-8", "replace"), body)), "sha1")
    return base64.b64encode(made).decode()


def signed(
    ext: Mapping[str, str], body: bytes | memoryview, access_key: str, secret: bytes, token: str | None = None
) -> dict[str, str]:
    """The fields of a request with account and signature. `token`: of an account that has one for a time."""
    fields = {**ext, ACCESS_KEY: access_key}
    if token is not None:
        fields[SECURITY_TOKEN] = token
    return {**fields, SIGNATURE: signature(fields, body, secret)}
