"""Replication: a master's service, a slave's client, and what both need of a store."""
