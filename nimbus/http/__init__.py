"""The HTTP API of a Nimbus: all requests of the command, the supervisors and other Nimbuses.

`table.py` lists the endpoints; the structs of requests and answers are in `squall.api`. The routes, the OpenAPI document and
docs/http-api.md are made from both. `handlers.py` carries out requests, `views.py` makes answers, `auth.py` checks callers,
`errors.py` maps exceptions; `app.py` reads requests and sends answers.
"""
