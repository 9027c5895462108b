"""A fleet, as Flower runs it."""
