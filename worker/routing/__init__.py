"""Routes emissions to their destination tasks: groupings, key hashes, outboxes."""
