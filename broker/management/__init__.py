"""Health, metrics and the API over HTTP: ordinary engine verbs, each within one tick.

http          the acceptor: its connections, their limits, TLS
api           the application: health, metrics, the API, and the console for all other paths
calls         how a call is declared and checked; `callers` authenticates, `hosts` checks the Host header
resources     the API's calls, a module for each resource
models        request and response bodies; `openapi` makes the document and the reference page from calls and models
problems      refusals as problem documents
cursors       paging of lists
"""
