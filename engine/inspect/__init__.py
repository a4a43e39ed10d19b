"""Layer 4: reads stores, and never writes (tests/engine/inspect/test_never_writes.py holds it to that)."""
