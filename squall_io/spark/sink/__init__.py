"""SparkSink: a batch bolt that brings rows into a table, each committed batch exactly once."""
