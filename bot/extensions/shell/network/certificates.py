"""An authority of our own, which only commands trust: so our proxy can speak TLS in the place of other hosts."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

VALID = timedelta(days=800)
"""Longer than a process lives: the keys are in memory alone, and made anew at each start."""


def tls_as(hosts: Iterable[str]) -> tuple[ssl.SSLContext, bytes]:
    """Return the server's side of TLS as all of these *hosts*, and the authority for that, as PEM. Blocking."""
    key, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Threadfast, for its sandbox")])

    def begin(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.CertificateBuilder:
        now, signs = datetime.now(UTC), x509.AuthorityKeyIdentifier.from_issuer_public_key(own.public_key())
        builder = x509.CertificateBuilder(name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + VALID)
        usage = x509.KeyUsage(not ca, False, False, False, False, ca, False, False, False)
        builder = builder.add_extension(x509.BasicConstraints(ca, None), critical=True)
        builder = builder.add_extension(usage, critical=True).add_extension(signs, critical=False)
        known_as = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        return builder.add_extension(known_as, critical=False)

    authority = begin(name, own, ca=True).sign(own, SHA256()).public_bytes(Encoding.PEM)
    named = x509.SubjectAlternativeName(map(_named, hosts))
    leaf = begin(x509.Name([]), key, ca=False).add_extension(named, critical=True).sign(own, SHA256())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The library reads files only; this one is on no disk.
    with os.fdopen(os.memfd_create("certificate"), "wb", buffering=0) as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.write(leaf.public_bytes(Encoding.PEM))
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context, authority


def _named(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
