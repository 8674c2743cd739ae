"""The workbench for dead letters, as the API and the console use it."""
