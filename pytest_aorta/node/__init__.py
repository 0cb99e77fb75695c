"""The node program: everything that happens on a machine. Standard library only, Python 3.8 and newer."""
