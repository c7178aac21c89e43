"""The files shipped with a topology, and the distributions and versions that run it."""
