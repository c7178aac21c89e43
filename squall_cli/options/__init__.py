"""Types and values of command-line options."""
