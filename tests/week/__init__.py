"""A simulated week: `threadfast run` and `threadfast chat` as they are, over fake platforms on their wires, in virtual time."""
