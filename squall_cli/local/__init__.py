"""The parts of `squall run`: following the run, reading the workers' logs, making the summary."""
