"""Connects to a ZooKeeper server by TLS, and says what is wrong when that fails.

A server proves by its certificate that it has the name by which the daemon calls it, and the daemon's certificate proves to the
server that the daemon belongs to the cluster. Kazoo can do this too, but it also trusts each authority of the system, leaves
sockets open, and reports nothing. Must not know: ZooKeeper's protocol, sessions.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Final

from squall.security.tls import BadCertificate
from squall.security.zookeeper_tls import CA, CERTIFICATE, ClientFiles

#: OpenSSL's errors for a name and for an address that a certificate does not contain.
_WRONG_NAME: Final = (62, 64)
_ALERT: Final = "ALERT_"
#: What the alerts of a server contain that refuses a certificate.
_REFUSALS: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")
#: Seconds that a server has to begin a handshake, when it is only asked whether it would.
_PROBE_SECS: Final = 1.0


class TlsFailed(OSError):
    """There is a server, but no connection by TLS; the text is for operators."""


def connect(address: tuple[str, int], name: str, timeout: float, files: ClientFiles) -> ssl.SSLSocket:
    """Connect to the server at an address, whose certificate must contain `name`. The files are read again each time, so that
    renewed ones are used. Raises `TlsFailed`, and `OSError` if no server can be reached."""
    end = time.monotonic() + timeout
    where = f"{name}:{address[1]}"
    try:
        context = files.context()
    except BadCertificate as error:
        raise TlsFailed(str(error)) from error
    plain = socket.create_connection(address, timeout)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.settimeout(max(0.01, end - time.monotonic()))
        return context.wrap_socket(plain, server_hostname=name)
    except OSError as error:
        plain.close()
        raise TlsFailed(refusal(error, where, files) or _no_handshake(error, where)) from error


def refusal(error: BaseException | None, where: str, files: ClientFiles) -> str | None:
    """Return what to report if one side refused the certificate of the other; None for any other error. A server refuses a
    certificate when the handshake is over for the client already."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_NAME:
            return (
                f"the certificate of the ZooKeeper at {where} is not for that name ({error.verify_message}): name the server"
                " as its certificate does"
            )
        return f"{CA} {files.ca} does not vouch for the ZooKeeper at {where}: {error.verify_message}"
    alert = (getattr(error, "reason", None) or "").partition(_ALERT)[2]
    if any(word in alert for word in _REFUSALS):
        why = alert.replace("_", " ").lower()
        return (
            f"the ZooKeeper at {where} refuses {CERTIFICATE} {files.certificate} ({why}): it must be valid, and signed by an"
            " authority in the server's ssl.trustStore"
        )
    return None


def speaks_tls(address: tuple[str, int]) -> bool:
    """Return whether a server begins a handshake. Nothing is sent to it in confidence, so its certificate is not checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError), socket.create_connection(address, _PROBE_SECS) as plain:
        try:
            context.wrap_socket(plain).close()
        except ssl.SSLError as error:
            return _ALERT in (error.reason or "")
        return True
    return False


def _no_handshake(error: OSError, where: str) -> str:
    what = "does not answer" if isinstance(error, TimeoutError) else "ends"
    why = getattr(error, "reason", None) or type(error).__name__
    return f"the ZooKeeper at {where} {what} a TLS handshake ({why}): is that its secureClientPort, and is it ready?"
