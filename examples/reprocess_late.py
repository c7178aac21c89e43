"""Late data: rows of one hour that were emitted at different times are merged into one.

    squall run examples/flights.py -- /tmp/flights
    squall reprocess examples/reprocess_late.py --input /tmp/flights/delays --output /tmp/flights/hours

It teaches what to do with data that comes late. The stream has emitted an hour as soon as it expected no more flights of that
hour; flights that came later made a row of their own. Nothing was lost, and nothing has to be counted again: the rows of an
hour are added up. A reader of the output sees each hour once, whenever its last row came. Let cron run the command as often as
you like: it does nothing unless there are new rows.
"""

from pyspark.sql import functions as F


def reprocess(spark, delays):
    sums = [F.sum(name).alias(name) for name in ("flights", "cancelled", "minutes")]
    return delays.groupBy("hour", "carrier").agg(*sums, F.count("*").alias("parts"))
