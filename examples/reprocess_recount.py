"""History, counted again after the logic has changed.

    squall run examples/flights.py -- /tmp/flights
    squall reprocess examples/reprocess_recount.py --input /tmp/flights/flights --output /tmp/flights/recounted --key id

It teaches reprocessing. The stream adds up minutes of delay, so a flight that left ten minutes early offsets a flight that was
ten minutes late. From now on it must not. This job counts again from the flights themselves: the result has the columns of the
stream's own table, and becomes visible as a whole, at once.

`--key id` leaves out replays, so that each flight is counted once, though it may be stored twice. If you change this file and
run it again, it is a different job, and gives a new version. If you run it again unchanged, nothing is done until there are
more flights.
"""

from pyspark.sql import functions as F


def reprocess(spark, flights):
    minutes_late = F.when(flights.delay > 0, flights.delay).otherwise(0)
    return flights.groupBy("hour", "carrier").agg(
        F.count("*").alias("flights"),
        F.count_if(flights.delay.isNull()).alias("cancelled"),
        F.sum(minutes_late).alias("minutes"),
    )
