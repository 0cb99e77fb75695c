"""Profiler traces: reading, metrics, and what they say across ranks."""
