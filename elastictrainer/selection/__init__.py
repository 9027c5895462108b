"""Selection of tensors: importance, selector, plan, budget and the schemes."""
