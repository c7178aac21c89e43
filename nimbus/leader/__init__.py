"""The leading Nimbus: its control thread, and the master that this thread runs."""
