"""The HTTP API of Nimbus.

`table.py` lists what can be asked and `answers.py` what is answered; the routes, the OpenAPI document and docs/http-api.md are
made from them. `handlers.py` has what is done, `gate.py` who may and whether this Nimbus is the one to ask, `errors.py` what
is said when it goes wrong.
"""
