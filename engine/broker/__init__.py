"""The daemon: an asyncio shell over the engine's store and the wire protocol. Real RocketMQ clients talk to it.

One process is broker and name service. Everything that clients know of it (topics, groups, offsets, members) lives in
tables of this package; messages live in the engine's store, which the commands of `rstore` open, too. One thread runs
the loop and answers; the store's own threads flush and dispatch.
"""
