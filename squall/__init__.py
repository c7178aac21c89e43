"""The parts that Squall's daemons share: settings, clock, reports, transport, the cluster's records.

This package imports the user's API (`topology_api`), but nothing of nimbus, supervisor, worker or the command. This file
imports nothing, so that `squall.packages.distributions` can check the other packages before they are loaded.
"""

__version__ = "0.1.0"
