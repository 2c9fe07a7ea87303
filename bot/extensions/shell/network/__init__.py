"""The network of commands: `tools.network`. Each command has a network of its own, with one way out: our proxy."""
