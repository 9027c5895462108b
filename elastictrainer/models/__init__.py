"""The models: built-in ones, the user's own, warm start from an earlier run, export."""
