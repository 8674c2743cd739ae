"""What goes into the API and comes out of it: pydantic models, from which its OpenAPI document is made."""
