"""The servers that tests of the HTTP client share."""

from __future__ import annotations

from tests.squall.http_servers import clients_closed, frozen, served, start

__all__ = ["clients_closed", "frozen", "served", "start"]
