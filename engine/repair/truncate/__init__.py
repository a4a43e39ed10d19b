"""The log ends where the operator says."""
