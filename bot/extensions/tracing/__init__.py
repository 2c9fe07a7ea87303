"""Spans of turns, model calls and tools for an OpenTelemetry collector."""
