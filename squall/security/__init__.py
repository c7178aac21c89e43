"""Keys, tokens, TLS, and the parts of a configuration that may be shown."""
