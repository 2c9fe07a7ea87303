"""The domain: what a conversation is and how it survives. It knows no platform, no model and no tool."""
