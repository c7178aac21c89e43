"""What the commands that talk to a cluster share."""
