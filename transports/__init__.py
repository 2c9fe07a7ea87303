"""The edges: one module or folder per chat platform."""
