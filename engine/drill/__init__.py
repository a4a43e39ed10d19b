"""Scripted failures on scratch stores, and the judgement of what is left: see DRILLS.md."""
