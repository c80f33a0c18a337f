"""The gateway: gives each request its scope, salt and permit from verified identity alone."""
