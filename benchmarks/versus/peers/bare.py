"""The bare loop in a process of its own, measured as the peers are. It has nothing to resume."""

from __future__ import annotations

from benchmarks.bare_loop import Sizes, run_bare
from benchmarks.versus.peers.harness import Fsyncs, Meter, Task

if __name__ == "__main__":
    task, fsyncs = Task.read(), Fsyncs()
    meter = Meter(fsyncs)
    run_bare(f"{task.data}/bare", task.threads, task.messages, Sizes())
    meter.say("")
