"""Changes of the brokers' ACL: accounts made, changed and deleted, addresses that need none. As `rstore admin acl`.

A plan shows no secret key, and neither does the operations log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.client.admin.accounts import AccountWanted, plan_account, plan_delete_account, plan_white_addresses
from engine.console.changes.change import by_name
from engine.console.changes.cluster import ClusterChange

if TYPE_CHECKING:
    from engine.client.admin.plan import AdminPlan
    from engine.console.web.asked import Asked


async def _account(asked: Asked) -> AdminPlan:
    """Make an account, or change it: rights that are not named stay."""
    wanted = AccountWanted(
        asked.needed("account"),
        asked.text("secret") or None,
        asked.is_on("admin"),
        asked.text("white_address") or None,
        asked.text("default_topic") or None,
        asked.text("default_group") or None,
        tuple(asked.text("topics").split()),
        tuple(asked.text("groups").split()),
    )
    return await plan_account(await asked.admin(), wanted, asked.text("cluster") or None)


async def _delete(asked: Asked) -> AdminPlan:
    return await plan_delete_account(await asked.admin(), asked.needed("account"), asked.text("cluster") or None)


async def _white(asked: Asked) -> AdminPlan:
    addresses = ",".join(asked.text("addresses").replace(",", " ").split())
    return await plan_white_addresses(await asked.admin(), addresses, cluster=asked.text("cluster") or None)


def _to_acl(_: Asked) -> str:
    return "/acl"


CHANGES = by_name(
    ClusterChange("acl-account", _account, _to_acl),
    ClusterChange("acl-delete", _delete, _to_acl),
    ClusterChange("acl-white", _white, _to_acl),
)
