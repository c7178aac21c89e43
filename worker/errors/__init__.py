"""Error reports of user code: the errors, their causes, and hints."""
