"""A store made from a snapshot: whole, or up to a moment."""
