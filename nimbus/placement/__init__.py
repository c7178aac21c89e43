"""Where tasks run: task ids, the scheduler, which supervisors are alive or drained."""
