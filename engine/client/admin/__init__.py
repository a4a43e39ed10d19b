"""What an administrator asks of a cluster, and changes: a module a noun, over the client's connections.

A change is a plan first: the requests that it will send, each with whom it goes to and what it does (`plan.py`).
Names of topics and groups are those of the wire.
"""
