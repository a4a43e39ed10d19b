"""Clients that are connected, as tables show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rstore_cli.admin.asking import Column

CLIENTS: list[Column] = [
    ("client", lambda one: one.client_id),
    ("address", lambda one: one.address),
    ("language", lambda one: one.language),
    ("version", lambda one: one.version),
]
