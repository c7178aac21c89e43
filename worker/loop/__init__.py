"""The worker's loop: builds its tasks, runs them in turn, moves batches and acks. The core, without I/O."""
