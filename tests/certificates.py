"""Certificates for tests, made by the `openssl` command: an authority and certificates that it signed."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificates:
    """`ca` signed `certificate` (of localhost and 127.0.0.1), whose key is `key`."""

    ca: str
    certificate: str
    key: str


def make_certificates(
    folder: Path, *, days: int = 30, names: str = "DNS:localhost,IP:127.0.0.1"
) -> Certificates:
    """An authority and a certificate that it signed; one with `days=-1` expired yesterday."""
    if shutil.which("openssl") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the openssl command is needed for tests of HTTPS")
        pytest.skip("no openssl command")
    folder.mkdir(parents=True, exist_ok=True)
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    certificate, key, request, extensions = (
        folder / name for name in ("server.pem", "server.key", "csr", "extensions")
    )
    extensions.write_text(f"subjectAltName={names}\nauthorityKeyIdentifier=keyid\n")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl(
        "req",
        "-x509",
        *new_key,
        "-keyout",
        ca_key,
        "-out",
        ca,
        "-days",
        "30",
        "-subj",
        "/CN=authority of a test",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",  # Python 3.13 requires it
    )
    _openssl("req", *new_key, "-keyout", key, "-out", request, "-subj", "/CN=localhost")
    _openssl(
        "x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-out", certificate,
        "-extfile", extensions, "-days", str(days),
    )  # fmt: skip
    key.chmod(0o600)
    return Certificates(str(ca), str(certificate), str(key))


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr}")
