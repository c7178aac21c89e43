"""Adds the orders of a Kafka topic to the balances of customers in PostgreSQL: each order once, whatever dies.

    squall run examples/kafka_orders.py -o topology.state.path=file:///tmp/shop-state -- kafka1:9092 \\
        postgresql+psycopg://app@db/shop

It teaches Kafka with exactly-once. Each message of the topic `orders` is an object of JSON, {"customer": "ada", "cents": 250}.
`Balances` keeps the balance of each customer as a `ValueState`; `KafkaSpout` has a position that it can return to; `SqlSink`
writes the rows of an epoch in one transaction, after the commit. So kill a worker, the broker or the database with -9: when all
are back, each customer's row has the sum of all of its orders, and the count of them.

The table has to exist:

    CREATE TABLE balance (customer text PRIMARY KEY, cents bigint NOT NULL, orders bigint NOT NULL)

A password is named, not given: the third argument is env:NAME, an environment variable of the workers, or file:/PATH. A message
that is no such object is left out: `squall status` counts it, and `squall errors` shows the first of each partition. A sink
could keep them all, from the spout's stream "unreadable". It needs `squall[kafka,postgres]`.
"""

from squall_io.kafka import KafkaSpout
from squall_io.sql import SqlSink
from topology_api import Fields, StatefulBolt, TopologyBuilder, ValueState


class Balances(StatefulBolt):
    """Adds each order to the balance of its customer."""

    key = "customer"
    outputs = Fields("customer", "cents", "orders")
    cents = ValueState(int, default=0)
    orders = ValueState(int, default=0)

    def execute(self, tup):
        self.cents.value += tup["cents"]
        self.orders.value += 1
        self.emit((tup["customer"], self.cents.value, self.orders.value))


def topology(servers="127.0.0.1:9092", database="postgresql+psycopg://app@127.0.0.1/shop", password=None):
    builder = TopologyBuilder("kafka-orders", {"topology.require": "exactly-once"})
    schema = "customer string NOT NULL, cents bigint NOT NULL"
    orders = builder.set_spout("orders", KafkaSpout("orders", servers=servers, schema=schema), parallelism=2)
    balances = builder.set_bolt("balances", Balances(), parallelism=2).fields_grouping(orders, "customer")
    columns = ["customer", "cents", "orders"]
    sink = SqlSink(database, "balance", columns, key="customer", password=password)
    builder.set_bolt("write", sink).fields_grouping(balances, "customer")
    return builder.build()
