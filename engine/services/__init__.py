"""Layer 4: what runs beside the log: flushing, dispatch, the flags that say what the store may do."""
