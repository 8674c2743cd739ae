"""Results for people and programs.  Nothing in this package depends on how a result was computed.

    text        readable values, and a result in words
    tables      the columns of a section, ready to be shown
    terminal    a table for a terminal, or for a pipe
    page        one self-contained HTML file: page.html is its template, style.css its style
    charts      the geometry of a section's chart, which the template draws
    machine     JSON, and directories of CSV or Parquet
    delivery    a result in a format, to standard output or to a path
    output      files that are written completely or not at all

Much of a result was chosen by the broker's clients (names, texts, addresses): everything shown passes through
`text.clean`, and the template escapes it.
"""
