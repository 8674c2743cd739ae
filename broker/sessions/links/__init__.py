"""Links: connections that this broker opens to others, and the routes on which messages pass."""
