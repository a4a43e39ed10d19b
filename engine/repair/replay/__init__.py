"""Saved messages that are put back: what is put, and how far it went (engine.replay carries it out)."""
