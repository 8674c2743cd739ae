"""The broker without sockets: addresses, queues, consumers, deliveries.  `engine.Engine` has its verbs.

The rooms, each of which imports only those below it:

    operators         make, change and delete by hand; notifications, connections, the disk
    delivery          subscribe, dispatch, redelivery, transactions, slow consumers
    publish           the one way in; messages retained
    moves             dead letters, expiry, retries, moves by operators, retroactive addresses
    recovery          after a restart, cleaning of segments, jumps of the clock
    routing           finding, making and changing destinations; which queues a message may enter
    client_sessions   what a client finds again that comes back
    queues            queues, addresses, consumers, backlogs; how messages enter and leave
    filter            selectors
    model             messages, names, patterns, settings, permissions, errors
"""
