"""What a table keeps, and for how long: files of replaced batches, old partitions, and what readers may still need."""
