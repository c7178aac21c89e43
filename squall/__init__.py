"""What Squall's daemons share: settings, clock, reports, transport, the cluster's records.

It knows the user's API (`topology_api`) and nothing of nimbus, supervisor, worker or the
command. This file imports nothing, so that `squall.packages.distributions` can look around before anything else is loaded.
"""

__version__ = "0.1.0"
