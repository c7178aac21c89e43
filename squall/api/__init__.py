"""The structs of the HTTP API, each defined once: requests and answers."""
