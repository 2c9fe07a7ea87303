"""What the model reads: system prompt, user messages, memory, skills; history repair and compaction."""
