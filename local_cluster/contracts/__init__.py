"""Checks of users' connectors: that a spout rewinds, and that a sink shows each row once, whatever is killed."""

from local_cluster.contracts.promises import ContractBroken
from local_cluster.contracts.spouts import check_rewindable_spout
from local_cluster.contracts.staged_sinks import check_staged_sink
from local_cluster.contracts.token_sinks import check_token_sink

__all__ = ["ContractBroken", "check_rewindable_spout", "check_staged_sink", "check_token_sink"]
