"""The kit: the parts that connectors share. Each part is a module that knows no connector."""
