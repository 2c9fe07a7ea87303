"""State on disk that does not belong to one thread: small JSON files, folder layout, migrations, restore."""
