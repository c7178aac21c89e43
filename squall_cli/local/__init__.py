"""What `squall run` needs beside its command: the run, the workers' logs, the summary."""
