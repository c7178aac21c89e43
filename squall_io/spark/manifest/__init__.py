"""The manifest of a table: which batches count, who owns what, and what was left by whom. Begin with commit.py."""
