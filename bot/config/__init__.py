"""settings.json: its shape, and how it is loaded and checked."""
