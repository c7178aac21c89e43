"""A table as a data source of Spark, for a frame or a stream: `format("squall")`."""
