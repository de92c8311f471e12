"""Drills that break a run on purpose and look at what is left."""
