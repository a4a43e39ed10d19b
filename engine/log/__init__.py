"""Layer 3: one structure each, none knows the store."""
