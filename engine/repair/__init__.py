"""Layer 5: changes closed stores. A plan is computed without writing a byte; applying it writes."""
