"""Frozen work is done once: the cut through a step's graph, the recorded examples, the replayed step."""
