"""Reports read from disk: threads, usage, audit and the story of one message. They take no lock."""
