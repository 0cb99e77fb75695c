"""Pages, XML, JSON and terminal text, drawn from plain data."""
