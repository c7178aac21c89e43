"""Squall's worker: runs tasks (loop, routers, trackers, outboxes). Must not know: the other daemons."""

from topology_api import core_choice as core_choice  # before anything that may be compiled
