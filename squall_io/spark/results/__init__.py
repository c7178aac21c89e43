"""Results of batch jobs over tables: reprocessing, and versions that are published whole."""
