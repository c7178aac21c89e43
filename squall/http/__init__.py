"""HTTP for all daemons and the command: client, connections, bodies."""
