"""The validation as pytest sees it."""
