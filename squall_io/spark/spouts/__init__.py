"""Spouts that read files and committed rows back as streams, and store how far they have read."""
