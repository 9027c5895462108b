"""What trains now: importance, selection, schedule, budget and the schemes."""
