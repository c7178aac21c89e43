"""Why a connection to a server failed, in a few words, with advice where a setting is mistyped or missing.

Must not know: what was asked. `ssl` is not loaded here: commands that do not use it start without it.
"""

from __future__ import annotations

import http.client
from typing import Final

#: The option that names the authority, as a person finds it in the site's file.
CA_OPTION: Final = "squall.tls.ca"
#: X509_V_ERR_*: no trusted authority signed the certificate; the other codes are faults of the certificate.
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)


def reason(error: Exception, ca: str | None, in_the_clear: bool = False) -> str:
    """Return why. `ca`: the file that certificates were checked against. `in_the_clear`: the first request, by http:."""
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended within the answer"
    if isinstance(error, (http.client.RemoteDisconnected, ConnectionResetError)):
        closed = "it closed the connection without an answer"
        return f"{closed} (if it serves HTTPS, its URL begins with https:)" if in_the_clear else closed
    if isinstance(error, http.client.BadStatusLine):
        return f"it does not speak HTTP but says {str(error)!r:.80}"
    if getattr(error, "reason", None) == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS (does its URL begin with http: ?)"
    if hasattr(error, "verify_code"):
        return _distrust(error.verify_code, getattr(error, "verify_message", ""), ca)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower() if error.strerror[:1].isupper() else error.strerror
    return str(error) or type(error).__name__


def _distrust(code: int, text: str, ca: str | None) -> str:
    """Return why a certificate is not accepted."""
    if code not in _UNKNOWN_AUTHORITY:
        return f"its certificate is not valid: {text.rstrip('.')}"
    signed = "no authority that this system trusts" if ca is None else f"none of the authorities in {ca}"
    return f"its certificate is signed by {signed} ({text}); {CA_OPTION} names the file with the right one"


def is_of_tls(error: Exception) -> bool:
    """Return whether a server is there, but the two sides did not agree on TLS."""
    return hasattr(error, "library") and hasattr(error, "reason")
