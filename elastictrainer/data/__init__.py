"""Data sets and the input pipeline."""
