"""`python -m tests.crash --rounds 200`: kill the real process that often; exit 1, keeping the folder, on a violation."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio

from tests.crash.discord.stage import DISCORD
from tests.crash.matrix.stage import MATRIX
from tests.crash.run import FORGETS_S, ROOT, SCALE, Rounds, crash_run
from tests.crash.slack.stage import SLACK
from tests.crash.web.stage import WEB
from tests.crash.workers import workers_run
from tests.transports.matrix.synapse import HOMESERVER


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument(
        "--over", choices=("web", "slack", "discord", "matrix"), help="web, and slack over postgres"
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--seconds-per-round", type=float, default=0.5, help="mean life after READY")
    parser.add_argument("--threads", type=int, default=24)
    parser.add_argument(
        "--stops", action="store_true", help="SIGTERM, and SIGTERM then kill -9, as often as kill -9"
    )
    parser.add_argument(
        "--within",
        type=float,
        default=0,
        help="over slack or discord, at the real rates: seconds after the last death by which all have an outcome",
    )
    parser.add_argument(
        "--questions", choices=("answered", "ignored"), default="", help="tools ask; whether people answer"
    )
    parser.add_argument(
        "--scale", type=float, default=SCALE, help="of the bot's waits and the lateness of posts"
    )
    parser.add_argument(
        "--forgets",
        type=float,
        default=FORGETS_S,
        help="over files: seconds after which a quiet thread is forgotten; 0: never",
    )
    parser.add_argument("--broken", default="", help="put this fault into the bot, to see it caught")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a good run too")
    parser.add_argument("--store", choices=("files", "postgres"), default="files")
    parser.add_argument("--workers", type=int, default=3, help="over postgres: how many at once")
    parser.add_argument(
        "--sleeps", type=int, default=10, help="over postgres: workers that stand still too long"
    )
    parser.add_argument("--crashes", type=int, default=10, help="over postgres: of the server")
    parser.add_argument(
        "--fail-over", action="store_true", help="over postgres: to a replica, in place of crashes"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        action="append",
        default=[],
        help="over postgres: the checkout of another version",
    )
    args = parser.parse_args()
    if args.over == "matrix" and not HOMESERVER.exists():
        parser.exit(message="Skipped: there is no Synapse. `make synapse` installs it.\n")
    folder = Path(tempfile.mkdtemp(prefix="threadfast-crash-"))
    rounds = Rounds(
        args.rounds,
        args.seed,
        args.seconds_per_round,
        threads=args.threads,
        scale=1.0 if args.within else args.scale,
        stops=args.stops,
        within_s=args.within,
        questions=args.questions,
        pause_s=30.0 if args.within else 0.4,
        forgets=0 if args.within else args.forgets,
    )
    over = args.over or ("slack" if args.store == "postgres" else "web")
    stage = {"slack": SLACK, "discord": DISCORD, "web": WEB, "matrix": MATRIX}[over]
    if args.broken:
        stage = replace(stage, options=("--broken", args.broken))
    say = partial(print, flush=True)
    if args.store == "postgres":
        run = partial(
            workers_run,
            folder,
            stage,
            workers=args.workers,
            deaths=args.rounds,
            sleeps=args.sleeps,
            crashes=args.crashes,
            fails_over=args.fail_over,
            checkouts=[ROOT, *args.beside],
            seed=args.seed,
            mean_s=args.seconds_per_round,
            threads=args.threads,
            say=say,
        )
    else:
        run = partial(crash_run, folder, rounds, stage, say)
    report = anyio.run(run)
    for violation in report.violations[:50]:
        print(violation)
    print(f"{report} (seed {args.seed})")
    if report.violations or args.keep:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    sys.exit(bool(report.violations))


if __name__ == "__main__":
    main()
