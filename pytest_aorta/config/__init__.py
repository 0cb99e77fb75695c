"""The configuration of a run, read strictly."""
