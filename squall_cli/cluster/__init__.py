"""The shared parts of commands that talk to a cluster."""
