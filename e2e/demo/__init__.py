"""The demo: real tenants on a real pool, and a table of what each could observe."""
