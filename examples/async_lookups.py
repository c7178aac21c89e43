"""Looks up a hundred names at a time over a network.

    squall run examples/async_lookups.py

It teaches `async def execute`. One lookup takes a fifth of a second, mostly waiting; a task runs up to `max_concurrency`
lookups at once on the worker's asyncio loop, and the other bolts run on meanwhile. Each tuple is acked when its own call ends,
so answers may arrive in any order, and an exception fails only one tuple. For a library that blocks instead of awaiting, use
`threaded = True`: see batches_to_sqlite.py.

`lookup` takes the place of your HTTP or database client; it only sleeps.
"""

import asyncio

from topology_api import Bolt, Fields, Spout, TopologyBuilder

COUNTRIES = ("Angola", "Bhutan", "Chile", "Denmark")


async def lookup(user):
    await asyncio.sleep(0.2)
    return COUNTRIES[user % len(COUNTRIES)]


class Users(Spout):
    outputs = Fields("user")

    def __init__(self, count):
        self.count = count

    def open(self, context):
        self.users = iter(range(self.count))

    def next_tuple(self):
        user = next(self.users, None)
        if user is None:
            return self.finish()
        self.emit((user,), message_id=user)


class Country(Bolt):
    outputs = Fields("user", "country")
    max_concurrency = 100

    async def execute(self, tup):
        country = await lookup(tup["user"])
        self.emit((tup["user"], country))


class Tally(Bolt):
    outputs = Fields("country", "users")

    def prepare(self, context):
        self.users = dict.fromkeys(COUNTRIES, 0)

    def execute(self, tup):
        self.users[tup["country"]] += 1

    def end_of_input(self):
        for country, users in self.users.items():
            print(f"{users:5}  {country}")
            self.emit((country, users))


def topology(count="500"):
    builder = TopologyBuilder("async-lookups")
    users = builder.set_spout("users", Users(int(count)))
    country = builder.set_bolt("country", Country()).shuffle_grouping(users)
    builder.set_bolt("tally", Tally()).global_grouping(country)
    return builder.build()
