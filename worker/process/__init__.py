"""A worker process: assembly, heartbeat, lease, log, exit."""
