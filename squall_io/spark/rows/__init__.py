"""Rows of Spark tables without Spark: schemas, types, values, file formats, Arrow tables."""
