"""Dead letters: the tuples that a spout gave up, with their failures, as values, as bytes and as files of a host."""
