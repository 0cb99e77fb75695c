"""Where the workload runs on a host: in a container, or on the host itself."""
