"""Seals and scrub."""
