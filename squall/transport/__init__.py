"""Frames between workers: what they hold, how they become bytes, how many may be under way, and who carries them (Squall)."""
