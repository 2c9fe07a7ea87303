"""What surrounds a model call: retry, gate, circuit breaker, failover, metering."""
