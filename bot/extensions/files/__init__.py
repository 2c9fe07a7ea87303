"""The tools that read, write, search and post files of a thread's workspace."""
