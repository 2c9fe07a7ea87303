"""The real bot process, killed again and again; a chat platform that outlives it; a judge that trusts neither."""
