"""The process: what starts before what, what answers on each port, and how it all ends."""
