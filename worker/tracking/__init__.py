"""Tuple trees (Storm's acker): ids, open trees, ack batches, timeouts, replay policy."""
