"""Late data: rows of one hour that were emitted at different times are merged into one.

    squall run examples/flights.py -- /tmp/flights
    squall reprocess examples/reprocess_late.py --input /tmp/flights/delays --output /tmp/flights/hours

It teaches what to do with data that comes late. The stream has emitted an hour when it expected no more of its flights; those
that came later made a row of their own. Nothing was lost, and nothing has to be counted again: the rows of an hour are added
up. A reader of the output sees an hour once, whenever its last row came. Let cron run it as often as you like: it works only
when there is something new.
"""

from pyspark.sql import functions as F


def reprocess(spark, delays):
    sums = [F.sum(name).alias(name) for name in ("flights", "cancelled", "minutes")]
    return delays.groupBy("hour", "carrier").agg(*sums, F.count("*").alias("parts"))
