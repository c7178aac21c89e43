"""The shapes of the HTTP API, each defined once: what a request holds, what is answered."""
