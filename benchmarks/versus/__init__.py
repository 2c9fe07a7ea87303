"""`python -m benchmarks versus`: the peers that install from a package, beside us, at the same work."""
