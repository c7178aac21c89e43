"""Joins two streams: an order and its payment become one shipment.

    squall run --allow-failures examples/join_streams.py

It teaches the rich bolt. With `auto_ack` and `auto_anchor` off, `Join` keeps each tuple until its partner arrives, emits the
result with both tuples as anchors (so that both trees wait for the shipment), and acks them afterwards, in any order. It fails
a tuple that finds no match within `patience`; the spout's replay policy emits such a tuple once more, and after that the tuple
goes to the spout's dead letters. In this example, one order is never paid, and one payment has no order.
"""

from topology_api import Bolt, Fields, Replay, Spout, TopologyBuilder

ORDERS = [(1, "tea"), (2, "coffee"), (3, "milk"), (4, "sugar")]
PAYMENTS = [(4, 80), (2, 350), (1, 420), (9, 100)]


class Rows(Spout):
    """A list as a source."""

    replay = Replay(max_attempts=2, first_delay=0.2)

    def __init__(self, fields, rows):
        self.outputs = Fields(*fields)
        self.rows = rows

    def open(self, context):
        self.left = list(reversed(self.rows))

    def next_tuple(self):
        if not self.left:
            return self.finish()
        row = self.left.pop()
        self.emit(row, message_id=row[0])


class Join(Bolt):
    auto_ack = False
    auto_anchor = False
    tick_interval = 0.5
    outputs = Fields("order", "item", "cents")

    def __init__(self, patience):
        self.patience = patience

    def prepare(self, context):
        self.now = context.now
        self.waiting = {"orders": {}, "payments": {}}  # order -> (tuple, since when)

    def execute(self, tup):
        other = "payments" if tup.component == "orders" else "orders"
        partner = self.waiting[other].pop(tup["order"], None)
        if partner is None:
            self.waiting[tup.component][tup["order"]] = (tup, self.now())
            return
        order, payment = (tup, partner[0]) if other == "payments" else (partner[0], tup)
        self.emit((order["order"], order["item"], payment["cents"]), anchors=(order, payment))
        self.ack(order)
        self.ack(payment)

    def tick(self):
        for waiting in self.waiting.values():
            for key, (tup, since) in list(waiting.items()):
                if self.now() - since >= self.patience:
                    del waiting[key]
                    self.fail(tup, f"nothing to join it with in {self.patience:g} s")


class Ship(Bolt):
    def execute(self, tup):
        print(f"order {tup['order']}: ship {tup['item']}, {tup['cents'] / 100:.2f} paid")


class Unmatched(Bolt):
    outputs = Fields("source", "order")

    def execute(self, tup):
        print(f"{tup.component}, order {tup['message_id']}: {tup['failure'].error}")
        self.emit((tup.component, tup["message_id"]))


def topology(patience="1"):
    builder = TopologyBuilder("join-streams")
    orders = builder.set_spout("orders", Rows(["order", "item"], ORDERS))
    payments = builder.set_spout("payments", Rows(["order", "cents"], PAYMENTS))
    join = builder.set_bolt("join", Join(float(patience)), parallelism=2)
    join.fields_grouping(orders, "order").fields_grouping(payments, "order")
    builder.set_bolt("ship", Ship()).shuffle_grouping(join)
    builder.set_bolt("unmatched", Unmatched()).dead_letters(orders).dead_letters(payments)
    return builder.build()
