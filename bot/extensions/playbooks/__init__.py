"""Playbooks: named sequences of stages that a thread works through, each an agent run with a checked result."""
