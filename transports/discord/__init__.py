"""Discord: parse and render are pure, the rest speaks to REST and the gateway."""
