"""Money: the ledger of model calls, the limits, and one account per turn."""
