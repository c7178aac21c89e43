"""A Delta Lake log beside the manifest, so that readers of Delta tables see exactly the committed rows.

The manifest decides; the log follows it. Must not know: sinks, Spark.
"""
