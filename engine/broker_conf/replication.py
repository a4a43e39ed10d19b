"""Whether a file lets not everybody use the broker, and everybody copy its log.

No ACL applies to Apache's replication port, which listens on every address. `rstore serve` listens on 127.0.0.1 there
once an ACL or enforced TLS is set, unless one of its own keys says otherwise; of a daemon that runs, with its options,
`engine.broker.net.ports` judges. Source: HAService.AcceptSocketService (4.9.8); SERVE.md, Who may copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.broker_conf.facts import Danger, Facts
from engine.broker_conf.in_force import BROKER, STORE
from engine.broker_conf.values import shown
from engine.format.hosts import is_loopback

KEYS = frozenset({"haListen", "haTls"})
"""With one of these first the danger is one of rstore serve."""


def replication_dangers(facts: Facts) -> Iterator[Danger]:
    """At most one. Of a master alone: a slave gives its log to nobody, and DLedger has no such port."""
    acl = facts.settings[BROKER, "aclEnable"] is True
    if not acl and _word(facts, "tls.server.mode") != "enforcing":
        return
    if facts.store("brokerRole") == "SLAVE" or facts.store("enableDLegerCommitLog") or _word(facts, "haAllow"):
        return
    tls, listen = _word(facts, "haTls") == "true", _word(facts, "haListen")
    if listen and is_loopback(listen):
        return
    if listen or tls:
        shown_there = "tls.config.file" in facts.written  # what it says of certificates is not known here
        if tls and (shown_there or _word(facts, "tls.server.need.client.auth") == "require"):
            return
        first = f"haListen = {shown(listen)} without haAllow" if listen else "haTls without haAllow"
        who = "whoever connects by TLS, also without a certificate," if tls else "whoever connects"
        yield Danger(
            ("haListen" if listen else "haTls", "aclEnable" if acl else "tls.server.mode"),
            f"{first}: {who} to the replication port of rstore serve gets the log",
            "set haAllow to the addresses of the slaves"
            + (", or tls.server.need.client.auth to require" if tls else ", or haTls with certificates of the slaves"),
        )
    elif acl:
        port = facts.number(STORE, "haListenPort")
        yield Danger(
            ("aclEnable",),
            f"aclEnable does not apply to replication: whoever connects to port {port} of Apache's broker gets the log",
            "let only slaves connect to that port; rstore serve listens on 127.0.0.1 there, or goes by haAllow",
            note=True,
        )


def _word(facts: Facts, key: str) -> str:
    return facts.written.get(key, "").strip().lower()
