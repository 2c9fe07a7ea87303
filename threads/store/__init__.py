"""A thread's files, and the disk operations they are made of."""
