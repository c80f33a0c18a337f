"""Resources as pydantic models: the API that people write."""
