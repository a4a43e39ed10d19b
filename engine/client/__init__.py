"""A client of RocketMQ clusters: asyncio over the same `wire/` as the daemon. Knows no store."""
