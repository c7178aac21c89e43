"""Frames between workers: what they hold, how they become bytes, how many may be under way, and who carries them (Squall)."""

from topology_api import core_choice as core_choice  # before anything that may be compiled
