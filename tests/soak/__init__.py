"""A long run of the whole bot as one process, both platforms at once, with faults on every side; see `tests.soak.run`."""
