"""Submissions: parsed, checked, accepted."""
