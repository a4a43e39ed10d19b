"""Faults put in on purpose: power cuts, kills, full disks; what was acknowledged must come through all of them."""
