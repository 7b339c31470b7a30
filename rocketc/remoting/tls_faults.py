"""Why a TLS connection failed, in words: OpenSSL's own texts name functions and lines of its source."""

from __future__ import annotations

import ssl

_EXPIRED, _EARLY = 10, 9
_UNKNOWN = (2, 18, 19, 20, 21)  # codes of X509_verify_cert_error_string
_OTHER_HOST = (62, 63, 64)
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_EOF_WHILE_READING", "UNEXPECTED_MESSAGE")
_ENDED = "the server ended the TLS handshake; it may speak only plain text, or refuse the certificate of this client"


def tls_fault(error: OSError) -> str:
    """Return why a TLS connection could not be made, or ended.

    error  an ssl.SSLError, or one of the connection during the handshake

    >>> tls_fault(ConnectionResetError(104, "Connection reset by peer"))[:35]
    'the server ended the TLS handshake;'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(error)
    if isinstance(error, ssl.SSLError):
        return _of_alert(error)
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return _ENDED
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return "the TLS handshake did not end in time"
    return error.strerror or str(error) or type(error).__name__


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "the certificate of the server has expired"
    if code == _EARLY:
        return "the certificate of the server is not valid yet"
    if code in _UNKNOWN:
        return "the certificate of the server is from an authority that is not trusted here"
    why = error.verify_message.rstrip(".")
    if code in _OTHER_HOST:
        return f"the certificate of the server is for another host: {why}"
    return f"the certificate of the server is not accepted: {why}"


def _of_alert(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if reason.endswith("CERTIFICATE_REQUIRED"):
        return "the server wants a certificate of this client"
    if "_ALERT_" in reason and ("CERTIFICATE" in reason or reason.endswith("UNKNOWN_CA")):
        return f"the server does not accept the certificate of this client ({reason})"
    if reason.endswith(_PLAIN):
        return f"the server does not speak TLS on this port ({reason})"
    return f"the server ended the TLS connection ({reason})" if reason else "the TLS connection failed"
