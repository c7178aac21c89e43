"""Tasks: one instance of a user's class each, with its emitter, hooks and metrics."""
