"""Models: adapters for each provider's wire, and the policies around a call."""
