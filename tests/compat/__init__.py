"""Interop with Apache RocketMQ 4.9.8: its own message store, run from Java, and fixtures that it wrote."""
