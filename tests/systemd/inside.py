"""`python -m tests.systemd.inside [NAME…]`, run by the machine's systemd: every proof, a line of JSON for each."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

import anyio

from tests.fakes.anthropic import FakeAnthropic
from tests.fakes.slack import FakeSlack
from tests.systemd.machine import ctl, journal, prepare
from tests.systemd.people import Crowd, think
from tests.systemd.proofs import PROOFS, QUIET_S, Failed, quiet

ALWAYS = ("installed", "starts")
"""What others stand on."""
LIMIT_S = 120
"""Seconds of a proof, besides those in which it is to be quiet."""


async def main(chosen: list[str]) -> int:
    prepare()
    await ctl("log-target", "journal")
    await ctl("log-level", "info")
    failed = 0
    async with FakeSlack(redeliver_after=(0.0, 1.0, 4.0, 10.0)) as slack, FakeAnthropic(think) as model:
        for number in range(3, 8):
            slack.channel(f"C{number}")
        crowd = Crowd(slack, model)
        for proof in PROOFS:
            name = proof.__name__
            if chosen and name not in (*ALWAYS, *chosen):
                continue
            began, since = time.monotonic(), time.time()
            try:
                with anyio.fail_after(LIMIT_S + (QUIET_S if proof is quiet else 0)):
                    ok, words = True, await proof(crowd)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the next proof is tried
                ok, words = False, str(error) if isinstance(error, Failed) else traceback.format_exc()
                print(await journal(since))
            failed += not ok
            line = {
                "name": name,
                "about": proof.__doc__,
                "ok": ok,
                "saw": words,
                "took_s": time.monotonic() - began,
            }
            with Path("/proof/results").open("a") as results:
                results.write(json.dumps(line) + "\n")
            if not ok and name in ALWAYS:
                break
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1:]))
