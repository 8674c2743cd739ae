"""The web console: pages by which an operator looks at a broker and works on its queues.

    console      the ASGI application: who may see a page, what a browser may do with it, errors as pages
    login        the form by which people come in; `sessions` has who has, and until when
    visit        one request for a page, with what it was given
    desk         what all pages work with
    render       templates, and how numbers, times and names are written
    listing      tables of very many rows
    ..._pages    the pages by what they are about

Pages are made on the server; without JavaScript all but the charts works.
"""
