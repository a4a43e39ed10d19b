"""Messages and consumer offsets copied from one cluster to another (see run.py)."""
