"""Which patterns match an address: the bindings of wildcard addresses, in a trie (Artemis semantics 1.2, 2.3).

Matching is strictly word by word. `*` stands for exactly one word, `#` for any number of words including none; both
may occur anywhere, also several times. Inside a word (`foo*`) they are ordinary characters. A pattern without wildcards
matches itself. So `a.#` matches `a`, `a.b` and `a.b.c`, and `a.#.z` matches `a.z`. A pattern that begins with a
wildcard matches no address that begins with `$`: brokers publish about themselves there.

Each pattern is a path. A match walks all paths at once, word by word through the address, holding the nodes that the
words so far may have led to (the frontier):

    root --a--> (1) --#--> (2)*        (2) stays in the frontier whatever the word: the words that # stands for;
                 \\--*--> (3)            and it is there as soon as (1) is: # may stand for none

So the cost grows with the words of the address and the patterns that could still match, not with the number of
patterns, and there is no recursion. Words keep their escapes: names are compared as written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from broker.engine.model.errors import InvalidName
from broker.engine.model.names import DEFAULT_SYNTAX, WildcardSyntax

T = TypeVar("T")

WORDS_MAX: Final = 128
"""The most words of a pattern. No naming scheme has so many levels, and each is a node that lives with its binding."""


def is_hidden(address: str) -> bool:
    """Whether patterns that begin with a wildcard do not match this address (MQTT 5.0, MQTT-4.7.2-1).

    Where `$` itself is a wildcard, it is escaped in such an address.
    """
    return address.startswith(("$", "\\$"))


class Node(Generic[T]):
    """A node of the trie. `repeats`: it is the node after a `#`, and every further word leads to it again."""

    __slots__ = ("any_words", "repeats", "single_word", "values", "words")

    def __init__(self, *, repeats: bool = False) -> None:
        self.words: dict[str, Node[T]] = {}
        self.single_word: Node[T] | None = None
        self.any_words: Node[T] | None = None
        self.values: dict[T, None] = {}  # a set that remembers the order of binding
        self.repeats = repeats

    @property
    def needed(self) -> bool:
        """Whether a pattern ends here or goes on."""
        return bool(self.values or self.words or self.single_word or self.any_words)


class Topics(Generic[T]):
    """Values by pattern. A value is bound to a pattern once; values are compared by hash."""

    __slots__ = ("_root", "_syntax")

    def __init__(self, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> None:
        self._root: Node[T] = Node()
        self._syntax = syntax

    def add(self, pattern: str, value: T) -> None:
        """Bind a value; binding it again has no effect. Raises InvalidName for more than WORDS_MAX words."""
        words = self._syntax.words(pattern)
        if len(words) > WORDS_MAX:
            raise InvalidName(f"a wildcard address of {len(words)} words: at most {WORDS_MAX} are allowed")
        node = self._root
        for word in words:
            node = self._child(node, word) or self._grow(node, word)
        node.values[value] = None

    def remove(self, pattern: str, value: T) -> None:
        """Unbind a value, and drop the nodes that only it needed. Raises KeyError if it was not bound."""
        path = [self._root]
        words = self._syntax.words(pattern)
        for word in words:
            child = self._child(path[-1], word)
            if child is None:
                raise KeyError(pattern)
            path.append(child)
        del path[-1].values[value]
        while words and not path.pop().needed:
            self._cut(path[-1], words.pop())

    def match(self, address: str, *, hidden: bool = False) -> list[T]:
        """The values of all matching patterns; a value bound to several of them is listed several times.

        `hidden`: patterns that begin with a wildcard do not match, as if the address began with `$`.
        """
        frontier: list[Node[T]] = []
        for reached in self.walk(address, hidden=hidden):
            frontier = reached
        return [value for node in frontier for value in node.values]

    def walk(self, address: str, *, hidden: bool = False) -> Iterator[list[Node[T]]]:
        """The frontier before the first word of the address and after each one."""
        words = self._syntax.words(address)
        frontier = [self._root]
        if hidden or is_hidden(address):
            yield frontier
            child = self._root.words.get(words.pop(0))
            frontier = [] if child is None else [child]
        frontier = _with_any_words(frontier)
        yield frontier
        for word in words:
            reached: list[Node[T]] = []
            for node in frontier:
                if node.repeats:
                    reached.append(node)
                child = node.words.get(word)
                if child is not None:
                    reached.append(child)
                if node.single_word is not None:
                    reached.append(node.single_word)
            frontier = _with_any_words(reached)
            yield frontier

    def _child(self, node: Node[T], word: str) -> Node[T] | None:
        if word == self._syntax.single_word:
            return node.single_word
        return node.any_words if word == self._syntax.any_words else node.words.get(word)

    def _grow(self, node: Node[T], word: str) -> Node[T]:
        child: Node[T] = Node(repeats=word == self._syntax.any_words)
        if word == self._syntax.single_word:
            node.single_word = child
        elif word == self._syntax.any_words:
            node.any_words = child
        else:
            node.words[word] = child
        return child

    def _cut(self, node: Node[T], word: str) -> None:
        if word == self._syntax.single_word:
            node.single_word = None
        elif word == self._syntax.any_words:
            node.any_words = None
        else:
            del node.words[word]


def _with_any_words(nodes: list[Node[T]]) -> list[Node[T]]:
    """The nodes, each once, and those reached when a `#` stands for no word."""
    if not nodes or (len(nodes) == 1 and nodes[0].any_words is None):
        return nodes
    frontier = dict.fromkeys(nodes)
    for node in nodes:
        following = node.any_words
        while following is not None and following not in frontier:
            frontier[following] = None
            following = following.any_words
    return list(frontier)
