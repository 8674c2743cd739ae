"""A result as people and programs read it.  Nothing here knows how a result was computed.

    text        values as people read them, and what a result says in words
    tables      a section's columns, ready to be shown
    terminal    a table for a terminal, or for a pipe
    page        one HTML file that needs nothing else: page.html is its template, style.css its style
    charts      what the template draws of a section's chart
    machine     JSON, and directories of CSV or Parquet
    delivery    a result in a format, to standard output or to a path
    output      files that are there as a whole or not at all

Much of a result was chosen by the broker's clients (names, texts, addresses): whatever is shown went through
`text.clean`, and is escaped by the template.
"""
