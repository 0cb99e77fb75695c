"""What lines of the kernel log mean."""
