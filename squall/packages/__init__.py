"""What travels with a topology, and which distributions and versions run it."""
