"""The client and HTTPS: whom it trusts, and its message if it does not, or if the server uses another protocol."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from squall.http.client import Unreachable
from tests.certificates import Certificates, make_certificates
from tests.squall.http_servers import Served, connect, page
from topology_api.errors import SquallError


def with_https(served: Served, made: Certificates) -> str:
    """Make a server use HTTPS; return its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    served.server.socket = context.wrap_socket(served.server.socket, server_side=True)
    return served.url.replace("http://", "https://")


def test_https_is_checked_by_the_given_certificates(served: Served, tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "certificates")
    url = with_https(served, made)
    served.pages["/api/v1/x"] = page({"safe": True})
    client = connect([url], ca=made.ca)
    assert client.get("x") == {"safe": True}
    with pytest.raises(SquallError, match="cannot be used: No such file"):
        connect([url], ca=str(tmp_path / "missing")).get("x")
    served.pages["/api/v1/x"] = page({}, 307, Location="http://127.0.0.1:1/api/v1/x")
    with pytest.raises(SquallError, match="not encrypted"):
        client.get("x")


def test_an_unknown_authority_is_reported_with_the_option_that_names_it(
    served: Served, tmp_path: Path
) -> None:
    url = with_https(served, make_certificates(tmp_path / "certificates"))
    with pytest.raises(Unreachable) as error:
        connect([url]).get("x")
    said = str(error.value)
    assert "its certificate is signed by no authority that this system trusts (" in said
    assert said.endswith("; squall.tls.ca names the file with the right one"), "nor advice to start it"
    other = make_certificates(tmp_path / "others")
    with pytest.raises(Unreachable, match=f"signed by none of the authorities in {other.ca} "):
        connect([url], ca=other.ca).get("x")


def test_a_certificate_of_another_host_is_not_blamed_on_the_authority(served: Served, tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "certificates", names="DNS:elsewhere.example.org")
    with pytest.raises(Unreachable, match=r"its certificate is not valid: .*127\.0\.0\.1") as error:
        connect([with_https(served, made)], ca=made.ca).get("x")
    assert "squall.tls.ca" not in str(error.value)


def test_http_to_an_https_server_is_recognised(served: Served, tmp_path: Path) -> None:
    with_https(served, make_certificates(tmp_path / "certificates"))
    with pytest.raises(Unreachable, match=r"\(if it serves HTTPS, its URL begins with https:\)$"):
        connect([served.url]).get("x")
