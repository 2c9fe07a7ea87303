"""What the model reads: system prompt, user messages, memory; history repair and compaction."""
