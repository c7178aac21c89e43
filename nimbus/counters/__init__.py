"""Counters of topologies: collected from workers, summed, and kept over a restart."""
