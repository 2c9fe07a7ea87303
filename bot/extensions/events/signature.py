"""Who sent a request, and that it is new: its signature and its key. Pure.

| form       | signed                     | headers                                                | the key       |
|------------|----------------------------|--------------------------------------------------------|---------------|
| `standard` | the id, the time, the body | `webhook-id`, `webhook-timestamp`, `webhook-signature` | the id        |
| `github`   | the body                   | `X-Hub-Signature-256`                                  | the signature |

`standard` is the symmetric form of Standard Webhooks (standardwebhooks.com): HMAC-SHA256, with a secret that is
base64 after ``whsec_``, or as it is. Its time may be `CLOCKS_S` away. GitHub signs no time and no id of the delivery,
so the same body again is the same event, whatever its headers say.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest, digest

from bot.extensions.events.refused import Refused
from bot.extensions.events.settings import Form
from bot.ports.config_error import ConfigInvalid

CLOCKS_S = 300.0
"""Seconds that a signed time may be away from ours."""

KEY, TIME_FORM = re.compile(r"[\x21-\x7e]{1,200}"), re.compile(r"[0-9]{1,12}", re.ASCII)

ID, TIME, SIGNATURE, GITHUB = "webhook-id", "webhook-timestamp", "webhook-signature", "x-hub-signature-256"
SINGLE = frozenset((ID, TIME, SIGNATURE, GITHUB, "host", "content-type", "content-encoding"))
"""Headers that a request has once at most."""

UNSIGNED = 401, "this request is not signed by a source of this bot"


def secret_bytes(secret: str) -> bytes:
    """Return what signs. Raises `ConfigInvalid` if it is not base64 after ``whsec_``."""
    try:
        return b64decode(secret[6:], validate=True) if secret.startswith("whsec_") else secret.encode()
    except ValueError:
        raise ConfigInvalid("events.sources: a secret that begins with whsec_ goes on in base64") from None


def key_of(form: Form, secret: bytes, headers: Mapping[str, str], body: bytes, now: float) -> str:
    """Return the key of a request that *secret* signed. Raises `Refused` for any other, and for an old one."""
    if form == "github":
        expected = f"sha256={digest(secret, body, sha256).hex()}"
        if not compare_digest(expected.encode(), headers.get(GITHUB, "").encode()):
            raise Refused(*UNSIGNED)
        return expected
    key, at = headers.get(ID, ""), headers.get(TIME, "")
    expected = f"v1,{b64encode(digest(secret, f'{key}.{at}.'.encode() + body, sha256)).decode()}"
    # Each is compared: while a secret changes there are two, and the time that it takes tells nothing.
    signatures = headers.get(SIGNATURE, "").split(" ")
    matching = [compare_digest(expected.encode(), one.encode()) for one in signatures]
    if not any(matching) or not KEY.fullmatch(key) or not TIME_FORM.fullmatch(at):
        raise Refused(*UNSIGNED)
    if abs(now - int(at)) > CLOCKS_S:
        raise Refused(401, "the signed time is too far from ours")
    return key
