"""The HTTP API of a Nimbus: all requests of the command, the supervisors and other Nimbuses.

`table.py` lists the endpoints; the structs of requests and answers are in `squall.api`. The routes, the OpenAPI document and
docs/http-api.md are made from both. `handlers.py` has what is done, `views.py` what is shown, `auth.py` who may ask,
`errors.py` what goes wrong; `app.py` reads requests and sends answers.
"""
