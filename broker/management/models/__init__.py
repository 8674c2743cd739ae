"""The request and response bodies of the API: pydantic models, from which its OpenAPI document is made."""
