"""A sender of events: it signs its requests as Standard Webhooks say, or as GitHub does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import time

RAW = b"0123456789abcdef0123456789abcdef"
SECRET = f"whsec_{base64.b64encode(RAW).decode()}"
JSON = {"Content-Type": "application/json"}


def signed(body: bytes, key: str = "e1", *, at: object = None, secret: bytes = RAW) -> dict[str, str]:
    """Return the headers of a request."""
    at = str(int(time.time()) if at is None else at)
    mac = hmac.new(secret, f"{key}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(mac).decode()}"
    return JSON | {"webhook-id": key, "webhook-timestamp": at, "webhook-signature": signature}


def as_github(body: bytes, delivery: str = "d1", *, secret: bytes = RAW) -> dict[str, str]:
    mac = hmac.new(secret, body, hashlib.sha256).hexdigest()
    return JSON | {"X-GitHub-Delivery": delivery, "X-Hub-Signature-256": f"sha256={mac}"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
