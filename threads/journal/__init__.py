"""journal.jsonl: the one place where a promise becomes durable."""
