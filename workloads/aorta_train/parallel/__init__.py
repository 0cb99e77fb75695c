"""The three ways in which ranks share a model, a module a mode; only the chosen one is imported."""
