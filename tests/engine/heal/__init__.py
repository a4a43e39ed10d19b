"""Tests of engine/heal."""
