"""Sources: the ways to the documented metrics other than our own timeline, each imported when it is chosen."""
