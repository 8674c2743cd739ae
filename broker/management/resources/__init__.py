"""The API's calls, a module for each resource."""
