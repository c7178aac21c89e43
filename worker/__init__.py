"""Squall's worker: runs tasks (executor loop, router, tree tracker, outbox). Knows no other daemon."""

from topology_api import core_choice as core_choice  # before anything that may be compiled
