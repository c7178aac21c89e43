"""The keyed state of a StatefulBolt task: values, lists, maps, timers, and how a failed call is undone."""
