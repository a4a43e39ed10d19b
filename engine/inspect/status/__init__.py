"""The state of a store at a glance, never by a scan of the log."""
