"""A grouping of your own: the busiest customer gets a task to itself.

    squall run examples/custom_grouping.py

It teaches `Grouping`. `prepare` gets the task ids of the reading bolt once, in each task that emits to it; `choose` gets the
values of each emission and returns the ids of the tasks that receive it. Here the first task serves the large customers, and
the other tasks share the rest; with a fields grouping, small customers might have to wait behind a large one.
"""

from zlib import crc32

from topology_api import Bolt, Fields, Grouping, Spout, TopologyBuilder

REQUESTS = ["acme"] * 6 + ["ann", "bob", "cem", "dora", "ann", "eve"]


class LargeCustomersApart(Grouping):
    def __init__(self, large):
        self.large = frozenset(large)

    def prepare(self, context, source, stream, target_tasks):
        self.first, *self.others = target_tasks

    def choose(self, values):
        customer = values[0]
        if customer in self.large or not self.others:
            return [self.first]
        # crc32, not hash(): every process must choose the same task, and hash() of a str differs between processes.
        return [self.others[crc32(customer.encode()) % len(self.others)]]


class Requests(Spout):
    outputs = Fields("customer")

    def open(self, context):
        self.requests = enumerate(REQUESTS)

    def next_tuple(self):
        number, customer = next(self.requests, (None, None))
        if number is None:
            return self.finish()
        self.emit((customer,), message_id=number)


class Serve(Bolt):
    outputs = Fields("task_index", "customer")

    def prepare(self, context):
        self.index = context.index

    def execute(self, tup):
        print(f"task {self.index} serves {tup['customer']}")
        self.emit((self.index, tup["customer"]))


def topology(*large):
    builder = TopologyBuilder("custom-grouping")
    requests = builder.set_spout("requests", Requests())
    serve = builder.set_bolt("serve", Serve(), parallelism=3)
    serve.custom_grouping(requests, LargeCustomersApart(large or ["acme"]))
    return builder.build()
