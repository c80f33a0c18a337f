"""The operator: watches resources, and makes the cluster what they say. The only importer of kopf."""
