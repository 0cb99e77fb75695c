"""Hosts and their node programs: ask all of them, keep every cause."""
