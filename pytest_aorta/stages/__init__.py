"""What is done, one module a stage."""
