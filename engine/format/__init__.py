"""Layer 1: bytes ↔ values. No I/O. Every layout is declared once, size-asserted, and described in FORMAT.md."""
