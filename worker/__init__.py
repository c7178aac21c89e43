"""Squall's worker: runs tasks (executor loop, router, tree tracker, outbox). Knows no other daemon."""
