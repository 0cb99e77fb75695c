"""The run: context, record on disk, folder, and the rules by which stages follow each other."""
