"""The web console: pages on which an operator watches a broker and manages its queues.

    console      the ASGI application: access to pages, security headers, errors as pages
    login        the login form; `sessions` has the logged-in browsers, and until when
    visit        one request for a page, with its form and query
    desk         what all pages share
    render       templates, and the formatting of numbers, times and names
    listing      tables of very many rows
    ..._pages    the pages by subject

Pages are rendered on the server; without JavaScript everything but the charts works.
"""
