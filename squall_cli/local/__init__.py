"""The parts of `squall run`: the run, the workers' logs, the summary."""
