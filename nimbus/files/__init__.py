"""Files that topologies bring: stored, fetched from other Nimbuses, removed."""
