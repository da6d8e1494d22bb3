"""A certificate that a server of ours shows: it vouches for itself."""

from __future__ import annotations

from disklab.databases.this_machine import ThisMachine


def self_signed(address: str) -> tuple[str, str]:
    """Return a new certificate for an address, and its key (PEM)."""
    made = ThisMachine().run(
        [
            *("openssl", "req", "-new", "-x509", "-nodes", "-days", "365"),
            *("-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}"),
            # A client may name it as the authority; some refuse an authority's own as a
            # server's.
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-out", "/dev/stdout", "-keyout", "/dev/stdout"),
        ],
    )
    begin = made.index("-----BEGIN CERTIFICATE-----")
    end = "-----END CERTIFICATE-----\n"
    certificate = made[begin : made.index(end) + len(end)]
    return certificate, made.replace(certificate, "")
