"""Runs tasks: executor loop, router, tree tracker, outbox. Knows no other daemon."""
