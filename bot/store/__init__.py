"""State on disk that belongs to no single thread: JSON files, folder layout, migrations, restore, PostgreSQL."""
