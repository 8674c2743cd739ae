"""The retained messages by address, and in the order in which they were published.

By address they are in a trie of words.  A pattern walks it with a frontier, the nodes that its words so far lead to, so
that each node is visited once per word; the rule for addresses with a `$` is that of `topics`.

A pattern may match all messages, and a client may have a thousand such patterns, so no list of matches is kept:

    few nodes lead to its matches    they are walked at once, and the messages put in order
    else                             all messages are looked at in order, from where the search stands (`_Search`)

Either way a search does little at a time.  It finds what was retained when it began and still is: what is published
meanwhile goes to the end of the order, behind the place where the search ends.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from operator import attrgetter
from typing import Final

from broker.engine.model import topics
from broker.engine.model.message import Message
from broker.engine.model.names import WildcardSyntax

#: The most nodes that are walked at once, one word of the pattern further, and in all for its words: some 300 us.
WALKED_MAX: Final = 256
WALKED_ALL_MAX: Final = 1_024

#: The words of the addresses that a search looks at before it says that it has found none, in some 200 us.
LOOKED_AT_MAX: Final = 256


class _Node:
    """The addresses that begin with the same words; with a message, it is in the order between `older` and `newer`."""

    __slots__ = ("message", "newer", "older", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Node] = _NO_WORDS
        self.message: Message | None = None
        self.older: _Node = self
        self.newer: _Node = self


#: The words below most nodes; never added to.
_NO_WORDS: Final[dict[str, _Node]] = {}

_AGE: Final = attrgetter("message.id")


class _Search:
    """Where a search stands: the next node to look at."""

    __slots__ = ("next",)

    def __init__(self, next: _Node) -> None:
        self.next = next


class RetainedIndex:
    """At most one message for each address.  Ids rise with the time of publication."""

    __slots__ = ("_end", "_root", "_searches", "_syntax")

    def __init__(self, syntax: WildcardSyntax) -> None:
        self._syntax = syntax
        self._root = _Node()
        self._end = _Node()  # of the order: between the newest and the oldest
        self._searches: dict[_Node, dict[_Search, None]] = {}  # that are interrupted, by where they stand

    # -- changes ---------------------------------------------------------------------------------------------------

    def put(self, message: Message) -> Message | None:
        """Add a message that is newer than all others; returns the one of its address that it replaces."""
        node = self._root
        for word in self._syntax.words(message.header.address):
            child = node.words.get(word)
            if child is None:
                if node.words is _NO_WORDS:
                    node.words = {}
                child = node.words[word] = _Node()
            node = child
        old, node.message = node.message, message
        if old is not None:
            self._unlink(node)
        end = self._end
        assert end.older is end or end.older.message is None or end.older.message.id < message.id, "it is the newest"
        node.older, node.newer = end.older, end
        end.older.newer = end.older = node
        return old

    def remove(self, message: Message) -> None:
        """Remove a message, and the nodes that only it needed."""
        words = self._syntax.words(message.header.address)
        path = [self._root]
        for word in words:
            path.append(path[-1].words[word])
        assert path[-1].message is message, "the trie has every message of the queue"
        path[-1].message = None
        self._unlink(path[-1])
        while words:
            node = path.pop()
            word = words.pop()
            if node.message is not None or node.words:
                break
            del path[-1].words[word]

    def _unlink(self, node: _Node) -> None:
        """Take a node out of the order; searches that stand there go on behind it."""
        newer = node.newer
        node.older.newer, newer.older = newer, node.older
        for search in self._searches.pop(node, ()):
            self._stand(search, newer)

    # -- lookup ----------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Message | None:
        """The message of an address."""
        node: _Node | None = self._root
        for word in self._syntax.words(name):
            if node is None:
                return None
            node = node.words.get(word)
        return None if node is None else node.message

    def search(self, pattern: str, below: int) -> Generator[Message | None, None, None]:
        """The messages of all addresses that a pattern, or name, matches, oldest first, with ids below a certain one.

        None for some time without a match.  Between two of them messages may come and go.  To be closed by who gives it
        up: compiled, nothing else does.
        """
        if not self._syntax.is_wildcard(pattern):
            message = self.get(pattern)
            if message is not None and message.id < below:
                yield message
            return
        nodes = self._reached(pattern)
        if nodes is None:
            yield from self._search_all(pattern, below)
            return
        for node in sorted([node for node in nodes if node.message is not None], key=_AGE):
            message = node.message
            if message is not None and message.id < below:  # not cleared or replaced meanwhile
                yield message

    def _search_all(self, pattern: str, below: int) -> Generator[Message | None, None, None]:
        patterns: topics.Topics[None] = topics.Topics(self._syntax)
        patterns.add(pattern, None)
        search = _Search(self._end.newer)
        looked_at = 0
        while (message := search.next.message) is not None and message.id < below:
            search.next = search.next.newer
            found = message if patterns.match(message.header.address) else None
            looked_at += message.header.address.count(self._syntax.delimiter) + 1
            if found is None and looked_at < LOOKED_AT_MAX:
                continue
            looked_at = 0
            self._stand(search, search.next)
            try:
                yield found
            finally:
                standing = self._searches[search.next]
                del standing[search]
                if not standing:
                    del self._searches[search.next]

    def _stand(self, search: _Search, node: _Node) -> None:
        search.next = node
        self._searches.setdefault(node, {})[search] = None

    # -- the trie --------------------------------------------------------------------------------------------------

    def _reached(self, pattern: str) -> Iterable[_Node] | None:
        """The nodes that a pattern leads to, if few nodes are on the way."""
        syntax = self._syntax
        frontier = {self._root: None}
        walked = 0
        for index, word in enumerate(syntax.words(pattern)):
            if index and topics.is_hidden(word):
                frontier.pop(self._root, None)  # though a `#` before it stood for no word, the pattern begins with it
            if word == syntax.any_words:
                below = self._below(frontier)
            elif word == syntax.single_word:
                below = self._children(frontier)
            else:
                below = {child: None for node in frontier if (child := node.words.get(word)) is not None}
            if below is None:
                return None
            walked += len(below)
            if walked > WALKED_ALL_MAX:
                return None
            frontier = below
        return frontier

    def _open(self, node: _Node) -> list[_Node]:
        """The nodes that a wildcard leads to."""
        if node is not self._root:
            return list(node.words.values())
        return [child for word, child in node.words.items() if not topics.is_hidden(word)]

    def _children(self, frontier: dict[_Node, None]) -> dict[_Node, None] | None:
        """The nodes one word below these, if they are few."""
        if sum([len(node.words) for node in frontier]) > WALKED_MAX:
            return None
        return {child: None for node in frontier for child in self._open(node)}

    def _below(self, frontier: dict[_Node, None]) -> dict[_Node, None] | None:
        """These nodes and all below them, if they are few."""
        reached: dict[_Node, None] = {}
        unseen = list(frontier)
        while unseen:
            node = unseen.pop()
            if node in reached:
                continue
            reached[node] = None
            if len(reached) + len(unseen) + len(node.words) > WALKED_MAX:
                return None
            unseen += self._open(node)
        return reached
