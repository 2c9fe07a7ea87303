"""One actor per thread: mailbox, turn, registry, and recovery after a crash."""
