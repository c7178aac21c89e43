"""Java processes and Spark sessions: one in a process, shared, made anew when they die."""
