"""What may a crash leave on the disk, and does the storage code come back from each of it?

`model` is a disk in memory that remembers what is durable, `crashes` lists what a power cut or a kill may leave,
`stories` play the real storage code and check the real recovery, `explore` puts them together, `mutants` breaks the
code in ways that the explorer must notice. ``python -m tests.explorer`` prints the figures.
"""
