"""A snapshot of a store: read, judged, cut into pieces. Nothing is written into the store, nor its lock taken."""
