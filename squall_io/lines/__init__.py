"""Lines of text files, from any file system: how bytes are cut into lines, and how a line becomes text."""
