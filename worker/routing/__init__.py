"""From one emission to its destination tasks: groupings, key hashes, outboxes."""
