"""Frames between workers: their contents, their bytes, flow control, links and carriers (Squall)."""

from topology_api import core_choice as core_choice  # before anything that may be compiled
