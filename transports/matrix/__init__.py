"""Matrix as a transport."""
