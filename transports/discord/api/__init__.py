"""How Discord is reached: its REST API, the gateway, and what it says when it refuses."""
