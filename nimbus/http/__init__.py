"""The HTTP API of a Nimbus: all requests of the command, the supervisors and other Nimbuses.

`table.py` lists the endpoints; `squall.api` has the structs of requests and answers. The routes, the OpenAPI document and
docs/http-api.md are made from these two. `handlers.py` carries out requests, `views.py` makes answers, `auth.py` checks
callers, `errors.py` maps exceptions to statuses; `requests.py` reads requests, and `app.py` sends answers.
"""
