"""The backup repository, snapshots and restores."""
