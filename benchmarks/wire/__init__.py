"""`python -m benchmarks wire`: whole bots on the wire of Slack and Discord, beside bare loops on the same SDKs."""
