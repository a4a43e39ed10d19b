"""Accounts of brokers with an ACL: made, changed and deleted; the addresses that need none; the state of the files.

Source: UpdateAccessConfigSubCommand, DeleteAccessConfigSubCommand, UpdateGlobalWhiteAddrSubCommand,
ClusterAclConfigVersionListSubCommand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.client.admin.plan import AdminPlan, AdminStep
from engine.client.admin.session import answer_of
from engine.dataclass import dataclass
from engine.wire.codes import RequestCode
from engine.wire.peer_object import PeerObject

if TYPE_CHECKING:
    from engine.client.admin.cluster_map import BrokerAt
    from engine.client.admin.session import AdminSession


@dataclass(frozen=True, slots=True)
class AclVersion:
    """The state of an ACL file at a broker. `changed_ms`: when it was changed last; `changes`: how often."""

    cluster: str
    broker: str
    address: str
    file: str
    changed_ms: int
    changes: int


@dataclass(frozen=True, slots=True)
class AccountWanted:
    """An account as it is to be; None: the broker keeps, or takes its default.

    Attributes:
        topics, groups: `NAME=RIGHT` each, with PUB, SUB, `PUB|SUB` or DENY.
    """

    access_key: str
    secret_key: str | None = None
    admin: bool = False
    white_address: str | None = None
    default_topic: str | None = None
    default_group: str | None = None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the secret."""
        return f"AccountWanted({self.access_key!r})"

    def to_fields(self) -> dict[str, str]:
        """The fields of the request."""
        fields = {
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
            "admin": "true" if self.admin else "false",
            "whiteRemoteAddress": self.white_address,
            "defaultTopicPerm": self.default_topic,
            "defaultGroupPerm": self.default_group,
            "topicPerms": ",".join(self.topics) or None,
            "groupPerms": ",".join(self.groups) or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


async def acl_versions(
    admin: AdminSession, cluster: str | None = None, broker: str | None = None
) -> tuple[AclVersion, ...]:
    """The ACL files of each broker. Raises InvalidArgument: no such cluster or broker."""
    rows: list[AclVersion] = []
    for at in (await admin.clusters()).selected(cluster, broker):
        answer = await admin.ask(at.address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        rows += _versions(at, answer.fields)
    return tuple(rows)


def _versions(at: BrokerAt, fields: Mapping[str, str]) -> list[AclVersion]:
    of = answer_of(at.address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    versions = PeerObject.parse((fields.get("allAclFileVersion") or "{}").encode(), of)
    return [
        AclVersion(
            at.cluster,
            at.name,
            at.address,
            file,
            versions.part(file).number("timestamp"),
            versions.part(file).number("counter"),
        )
        for file in sorted(versions.fields)
    ]


async def plan_account(
    admin: AdminSession, wanted: AccountWanted, cluster: str | None = None, broker: str | None = None
) -> AdminPlan:
    """Make an account, or change it, on the brokers of a cluster or one, slaves too.

    Raises:
        InvalidArgument: no such cluster or broker.
    """
    fields = wanted.to_fields()
    shown = ", ".join(
        f"{name}={'***' if name == 'secretKey' else value}" for name, value in fields.items() if name != "accessKey"
    )
    return await _everywhere(
        admin,
        f"account {wanted.access_key}",
        f"account {wanted.access_key} is made or changed: {shown}",
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        fields,
        (cluster, broker),
    )


async def plan_delete_account(
    admin: AdminSession, access_key: str, cluster: str | None = None, broker: str | None = None
) -> AdminPlan:
    """Delete an account. Raises InvalidArgument: no such cluster or broker."""
    words = f"account {access_key} is deleted"
    code, fields = RequestCode.DELETE_ACL_CONFIG, {"accessKey": access_key}
    return await _everywhere(admin, f"account {access_key}", words, code, fields, (cluster, broker))


async def plan_white_addresses(
    admin: AdminSession, addresses: str, file: str | None = None, cluster: str | None = None, broker: str | None = None
) -> AdminPlan:
    """Set the addresses that need no account. `file`: the ACL file at the broker. Raises InvalidArgument."""
    fields = {"globalWhiteAddrs": addresses} | ({} if file is None else {"aclFileFullPath": file})
    words = f"addresses without an account become {addresses or 'none'}"
    code = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    return await _everywhere(admin, "addresses without an account", words, code, fields, (cluster, broker))


async def _everywhere(
    admin: AdminSession,
    change: str,
    words: str,
    code: RequestCode,
    fields: Mapping[str, str],
    where: tuple[str | None, str | None],
) -> AdminPlan:
    """On slaves, too: each broker has files of its own."""
    clusters = await admin.clusters()
    names = {one.name for one in clusters.changed(*where)}
    brokers = [one for one in clusters.selected(*where) if one.name in names]
    return AdminPlan(change, tuple(AdminStep.at(at, words, code, fields) for at in brokers))
