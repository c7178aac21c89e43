"""Error reports of user code: what was raised, what led to it, what may help."""
