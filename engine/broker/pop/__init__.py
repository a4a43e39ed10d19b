"""Consumers that pop: messages are given, invisible for a time, acknowledged one by one (RocketMQ 5)."""
