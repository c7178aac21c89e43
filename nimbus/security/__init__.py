"""The secrets of a Nimbus: the keys of topologies, the operators' token."""
