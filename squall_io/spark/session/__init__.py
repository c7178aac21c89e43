"""Java processes and Spark sessions: one per process, shared, restarted when they die."""
