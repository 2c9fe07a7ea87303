"""What may a crash leave on the disk, and does the storage code come back from each of it?

`model` is a disk in memory that remembers what is durable, `crashes` lists what a power cut or a kill may leave, `scenarios`
and `threadfiles` play the real storage code and judge the real recovery, `explore` crashes a scenario everywhere, `campaign`
lists what is explored, `faults` makes a disk refuse, `spoil` damages files, and `mutants` plants bugs that must be found.
``python -m tests.explorer`` prints the figures, with ``--mutants`` where each bug is found.
"""
