"""Spouts that read files and committed rows back as streams, and keep how far they are."""
