"""Definitions of a broker: exported as one document, compared with those of another broker, and imported there."""
