"""Rules for metrics, and their verdicts."""
