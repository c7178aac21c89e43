"""Counters of topologies: collected from workers, summed, kept over a restart."""
