"""A Kubernetes whose components run as processes of this machine: no container engine, no image registry."""
