"""Keys, tokens, TLS, and what of a configuration may be shown."""
