"""The manifest of a table: which batches count, who owns each writer id, and leftovers. Begin with commit.py."""
