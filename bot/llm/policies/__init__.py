"""The policies around a model call: retry, gate, circuit breaker, failover, metering."""
