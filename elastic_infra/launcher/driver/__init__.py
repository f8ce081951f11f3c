"""The driver beside the store: it grows a job into idle capacity, and tells of failures in Kubernetes Events."""
