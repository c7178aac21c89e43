"""Identity and secrets of a Nimbus: state directory, keys, the operators' token."""
