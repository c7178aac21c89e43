"""On which addresses a daemon may listen without TLS, and unusable certificates."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from squall.security.tls import (
    CA,
    CERTIFICATE,
    KEY,
    BadCertificate,
    InsecureBind,
    ca,
    check_bind,
    client_context,
    is_loopback,
    server_context_files,
)
from tests.certificates import Certificates, make_certificates

HERE = ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"]
OTHERS = ["0.0.0.0", "::", "", "10.0.0.1", "192.168.1.7", "fe80::1", "no-such-host.invalid", "x" * 300]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("host", HERE)
def test_this_machine_may_be_served_without_tls(host: str, caplog: pytest.LogCaptureFixture) -> None:
    assert is_loopback(host)
    check_bind(host, tls=False, insecure=False)
    assert not caplog.records


@pytest.mark.parametrize("host", OTHERS)
def test_other_machines_are_not_served_without_tls_and_the_error_names_the_options(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InsecureBind) as refused:
        check_bind(host, tls=False, insecure=False)
    assert all(word in str(refused.value) for word in (host, CERTIFICATE, KEY, "--insecure", "127.0.0.1"))
    check_bind(host, tls=True, insecure=False)


def test_insecure_is_allowed_with_a_warning_at_every_start(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        check_bind("0.0.0.0", tls=False, insecure=True)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "in the clear" in caplog.text and CERTIFICATE in caplog.text


@pytest.mark.parametrize(("host", "tls"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_an_unnecessary_insecure_option_is_reported(
    host: str, tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    check_bind(host, tls=tls, insecure=True)
    assert "has no effect" in caplog.text


def test_without_files_there_is_no_https_and_half_of_them_are_refused(files: Certificates) -> None:
    assert server_context_files({}) is None
    assert server_context_files({CERTIFICATE: None, KEY: None}) is None
    with pytest.raises(BadCertificate, match=f"{CERTIFICATE} is set and {KEY} is not"):
        server_context_files({CERTIFICATE: files.certificate})
    with pytest.raises(BadCertificate, match=f"{KEY} is set and {CERTIFICATE} is not"):
        server_context_files({KEY: files.key})


def test_unusable_files_are_named_with_the_reason(files: Certificates, tmp_path: Path) -> None:
    def problem(certificate: str, key: str) -> str:
        with pytest.raises(BadCertificate) as refused:
            server_context_files({CERTIFICATE: certificate, KEY: key})
        return str(refused.value)

    text = tmp_path / "text"
    text.write_text("no PEM at all")
    text.chmod(0o600)
    other = make_certificates(tmp_path / "other")
    assert f"{KEY} {tmp_path}/none cannot be read" in problem(files.certificate, f"{tmp_path}/none")
    assert f"{CERTIFICATE} {tmp_path}/none cannot be read" in problem(f"{tmp_path}/none", files.key)
    assert "not a certificate and its key" in problem(str(text), files.key)
    assert "not a certificate and its key" in problem(files.certificate, str(text))
    assert f"{KEY} {other.key} is not the key of {CERTIFICATE} " in problem(files.certificate, other.key)
    Path(other.key).chmod(0o644)
    assert f"chmod 600 {other.key}" in problem(other.certificate, other.key)


def test_a_key_with_a_passphrase_is_refused_without_a_prompt(files: Certificates, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    arguments = ["openssl", "pkcs8", "-topk8", "-in", files.key, "-out", str(locked), "-passout", "pass:x"]
    subprocess.run(arguments, check=True, capture_output=True, timeout=60)
    locked.chmod(0o600)
    with pytest.raises(BadCertificate, match="passphrase"):
        server_context_files({CERTIFICATE: files.certificate, KEY: str(locked)})


def test_the_authority_is_checked_when_it_is_named(files: Certificates, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no PEM at all")
    assert ca({}) is None
    assert ca({CA: files.ca}) == files.ca
    with pytest.raises(BadCertificate, match="holds no certificates"):
        ca({CA: str(tmp_path / "text")})
    with pytest.raises(BadCertificate, match="No such file"):
        ca({CA: str(tmp_path / "none")})


def handshake(server: Certificates, client: ssl.SSLContext, name: str) -> str:
    """The error of a client that connects to a server with these certificates; "" without one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    here, there = socket.socketpair()
    there.settimeout(10)

    def serve() -> None:
        try:
            context.wrap_socket(there, server_side=True).close()
        except OSError:
            pass
        finally:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        here.settimeout(10)
        with client.wrap_socket(here, server_hostname=name):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        here.close()
        thread.join()


def test_a_client_accepts_a_server_by_its_certificate_and_name_and_no_other(
    files: Certificates, tmp_path: Path
) -> None:
    ours = client_context(files.ca)
    assert server_context_files({CERTIFICATE: files.certificate, KEY: files.key}) is not None
    assert handshake(files, ours, "localhost") == ""
    assert "mismatch" in handshake(files, ours, "elsewhere.example").lower()
    assert "certificate" in handshake(files, client_context(None), "localhost")
    stranger = make_certificates(tmp_path / "stranger")
    assert "certificate" in handshake(stranger, ours, "localhost")
    ended = make_certificates(tmp_path / "ended", days=-1)
    assert "expired" in handshake(ended, client_context(ended.ca), "localhost")
