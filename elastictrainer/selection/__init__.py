"""Selection of tensors: importance, the selector of a run, the knapsack, and the schemes."""
