"""SparkSink: a batch bolt that writes rows to a table, each committed batch exactly once."""
