"""The manifest of a table: which batches count (readers see their rows), who owns each writer id, and leftovers. Begin with
commit.py.
"""
