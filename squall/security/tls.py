"""The rule for addresses that daemons listen on: unencrypted HTTP only for this machine, HTTPS for other machines.

Certificates are loaded here only to report problems with them.
Must not know: servers and clients, what they send.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import ssl
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NoReturn

import msgspec

from topology_api.errors import SquallError

CERTIFICATE: Final = "squall.tls.certificate"
KEY: Final = "squall.tls.key"
CA: Final = "squall.tls.ca"

_log = logging.getLogger(__name__)


class InsecureBind(SquallError):
    """A daemon without a certificate would listen to other machines."""


class BadCertificate(SquallError):
    """Files for HTTPS that cannot be used."""


class ServerFiles(msgspec.Struct, frozen=True):
    """The files of a daemon for HTTPS: the paths of a certificate (with its chain) and of its private key."""

    certificate: str
    key: str


class AtStake(msgspec.Struct, frozen=True):
    """What an eavesdropper on a port without TLS does, for the text of the refusal and for the text of the warning."""

    refused: str
    warned: str


#: Nimbus's port, to which commands connect.
TOKEN: Final = AtStake(
    "reads the operators' token and may change what is submitted",
    "reads the operators' token, and with it runs code on every host of the cluster",
)
#: A supervisor's port, from which Nimbuses read logs.
LOGS: Final = AtStake(
    "reads the workers' logs that are fetched from here, and may change them",
    "reads the workers' logs that are fetched from here, and may change them",
)


def check_bind(host: str, tls: bool, insecure: bool, at_stake: AtStake = TOKEN) -> None:
    """Raise `InsecureBind` if the daemon would listen to other machines unencrypted; with `insecure`, warn instead."""
    if tls or is_loopback(host):
        if insecure:
            why = "HTTPS is served" if tls else f"{host} is reached from this machine only"
            _log.warning("--insecure has no effect here: %s", why)
        return
    if not insecure:
        raise InsecureBind(
            f"{host or 'every address'} can be reached from other machines, and without a certificate everybody on the way "
            f"{at_stake.refused}: set {CERTIFICATE} and {KEY}, listen on 127.0.0.1, "
            "or say --insecure if the network is yours alone"
        )
    _log.warning(
        "--insecure: listening on %s in the clear. An eavesdropper %s. Set %s and %s",
        host or "every address",
        at_stake.warned,
        CERTIFICATE,
        KEY,
    )


def is_loopback(host: str) -> bool:
    """Return whether a server on `host` (a name or an address) can be reached from this machine only."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    if not host:  # every address
        return False
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return host == "localhost"
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)


def server_context_files(conf: Mapping[str, object]) -> ServerFiles | None:
    """Return the certificate and key that the settings name; None if the settings name none. Both are loaded once, to check
    that they are valid."""
    certificate, key = conf.get(CERTIFICATE), conf.get(KEY)
    if not certificate and not key:
        return None
    if not certificate or not key:
        missing, there = (CERTIFICATE, KEY) if key else (KEY, CERTIFICATE)
        raise BadCertificate(f"{there} is set and {missing} is not: HTTPS needs both")
    files = ServerFiles(str(certificate), str(key))
    load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files.certificate, files.key)
    return files


def load_pair(
    context: ssl.SSLContext, certificate: str, key: str, options: tuple[str, str] = (CERTIFICATE, KEY)
) -> None:
    """Load a certificate and its key into the context. Raises `BadCertificate`, which names the `options` that gave the files.
    A key that others may read is refused."""
    certificate_option, key_option = options
    _check_mode(key, key_option)

    def no_password() -> NoReturn:
        # Without this function OpenSSL would ask for the passphrase at the terminal.
        raise BadCertificate(
            f"{key_option} is locked by a passphrase: daemons need a key without a passphrase, in a file of mode 0600"
        )

    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadCertificate(
                f"{key_option} {key} is not the key of {certificate_option} {certificate}"
            ) from error
        raise BadCertificate(
            f"{certificate_option} {certificate} and {key_option} {key} are not a certificate and its key in PEM format: "
            f"{error.reason or 'not PEM'}"
        ) from error
    except OSError as error:
        for option, path in ((certificate_option, certificate), (key_option, key)):
            if not os.access(path, os.R_OK):
                raise BadCertificate(f"{option} {path} cannot be read: {error.strerror}") from error
        raise BadCertificate(f"{certificate} and {key} cannot be read: {error}") from error


def ca(conf: Mapping[str, object]) -> str | None:
    """Return the file with the CA certificates for HTTPS, None for the system's certificates. Raises `BadCertificate`."""
    if not (path := conf.get(CA)):
        return None
    client_context(str(path))
    return str(path)


def client_context(trusted: str | None, option: str = CA) -> ssl.SSLContext:
    """Return a client's TLS context, which always checks the server's certificate and name. If a file is given, by `option`,
    only its certificates are trusted. Raises `BadCertificate` if the file holds no certificates."""
    try:
        return ssl.create_default_context(cafile=trusted)
    except OSError as error:  # SSLError is an OSError
        why = "it holds no certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise BadCertificate(f"{option} {trusted} cannot be used: {why}") from error


def _check_mode(key: str, option: str) -> None:
    try:
        mode = stat.S_IMODE(os.stat(key).st_mode)
    except OSError as error:
        raise BadCertificate(f"{option} {key} cannot be read: {error.strerror}") from error
    if mode & 0o027:  # some systems let a group read it (ssl-cert)
        raise BadCertificate(
            f"{option} {key} may be read or changed by users other than its owner (mode {mode:04o}): run `chmod 600 {key}`"
        )
