"""The cache of activations: the cut through a step's graph, the cached examples, the cached step."""
