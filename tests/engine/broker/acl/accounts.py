"""Accounts for tests: one that owns a topic and a group, one that owns others, an admin; and what each signs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.wire.command import RemotingCommand
from engine.wire.signing import signature
from tests.engine.broker.client import Client

MINE, THEIRS, OPERATOR = "account-mine", "account-theirs", "account-operator"
DENIED = "org.apache.rocketmq.acl.common.AclException: "
FILE = f"""\
accounts:
  - accessKey: {MINE}
    secretKey: 12345678
    topicPerms: [Mine=PUB|SUB]
    groupPerms: [mygroup=SUB]
  - accessKey: {THEIRS}
    secretKey: 12345678
    topicPerms: [Secret=PUB|SUB]
    groupPerms: [victim=SUB]
  - accessKey: {OPERATOR}
    secretKey: 12345678
    admin: true
"""


def acl_file(directory: Path, text: str = FILE) -> str:
    """The file of these accounts."""
    file = directory / "plain_acl.yml"
    file.write_text(text)
    return str(file)


async def ask(
    client: Client, key: str, code: int, ext: Mapping[str, str] | None = None, body: bytes = b""
) -> RemotingCommand:
    """The answer to a signed request."""
    fields = {**(ext or {}), "AccessKey": key}
    return await client.ask(code, {**fields, "Signature": signature(fields, body, b"12345678")}, body)


def is_denied(answer: RemotingCommand) -> bool:
    """Whether the ACL refused."""
    return answer.code == 1 and (answer.remark or "").startswith(DENIED)
