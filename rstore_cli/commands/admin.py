"""`rstore admin`: a running cluster by nouns: what there is, and changes with plans (ADMIN.md: mqadmin's words)."""

from __future__ import annotations

from rstore_cli.admin import (
    acl,
    broker,
    cluster,
    consumer,
    dlq,
    group,
    message,
    namesrv,
    offset,
    producer,
    topic,
)
from rstore_cli.admin.nouns import Noun

app = Noun(
    "Administer a running cluster, Apache's or rstore's: what mqadmin does, by nouns. The account for brokers with an "
    "ACL is taken from RSTORE_ACCESS_KEY and RSTORE_SECRET_KEY."
)
for _name, _noun in {
    "cluster": cluster,
    "broker": broker,
    "topic": topic,
    "group": group,
    "consumer": consumer,
    "producer": producer,
    "offset": offset,
    "message": message,
    "dlq": dlq,
    "namesrv": namesrv,
    "acl": acl,
}.items():
    app.add_typer(_noun.app, name=_name)
