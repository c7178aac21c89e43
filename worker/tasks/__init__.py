"""Tasks: one instance of a user's class each, with its emitter, executor, hooks and metrics."""
