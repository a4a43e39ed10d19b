"""Layer 4: readers and menders of closed stores. A plan is computed without writing a byte; applying it writes."""
