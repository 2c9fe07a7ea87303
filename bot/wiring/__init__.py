"""The composition root: settings become objects, and the objects meet. `chat` and `run` start here."""
