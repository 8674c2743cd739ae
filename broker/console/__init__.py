"""The web console: pages by which an operator looks at a broker and works on its queues.

    console      the ASGI application: who may see a page, what a browser may do with it, errors as pages
    sessions     who has logged in, for how long
    login        the form by which people come in
    visit        one request for a page, with what it was given
    render       templates, and how numbers, times and names are written
    ...pages     the pages by what they are about

Pages are made on the server; without JavaScript all but the charts works.
"""
