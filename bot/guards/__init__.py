"""Guards: egress, redaction of secrets, tool policy, process hardening."""
