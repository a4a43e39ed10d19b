"""Changes from the console: planned, shown, confirmed, carried out, noted in the operations log."""
