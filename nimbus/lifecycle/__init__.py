"""The life of a topology: its states as a table, transitions, rebalance, replacement, cleanup."""
