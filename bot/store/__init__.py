"""State on disk that belongs to no single thread: JSON files, folder layout and version, restore, PostgreSQL."""
