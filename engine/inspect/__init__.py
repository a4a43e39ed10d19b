"""Layer 4: reads stores, and never writes (tests/engine/test_layers.py holds it to that)."""
