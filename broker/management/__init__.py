"""Health, metrics and the API over HTTP: ordinary engine verbs, each within one tick.

http          the acceptor: its connections, their limits, TLS
api           what it answers: health, the API, and for all other paths the console
calls         how a call is declared, and what is asked before it is made; callers, hosts: who may
resources     the API's calls, a module for each resource
models        what goes in and comes out; `openapi` makes the document and the reference page of both
problems      refusals
cursors       where lists go on
"""
