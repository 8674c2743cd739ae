"""The one table: every word, by kind.

Refusals of the engine are sent to clients as conditions and reason codes: `see` links the two, using the same functions
as the sessions.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import cache

from broker.engine.model import errors
from broker.engine.model.errors import EngineError
from broker.log_events import EVENTS
from broker.reasons import exit_status, ibm_mq
from broker.reasons.conditions import AMQP, MQTT, STOMP
from broker.reasons.messages import DEAD_LETTERS, REMOVALS, STAYS
from broker.reasons.reason import NOTHING, Kind, Reason
from broker.reasons.refusals import ANSWERS, PROBLEMS, REFUSALS
from broker.sessions.amqp import terms as amqp_terms
from broker.sessions.mqtt import terms as mqtt_terms
from protocols.mqtt.codes import RETURN_CODES, ReasonCode


@cache
def reasons() -> tuple[Reason, ...]:
    """All reasons, ordered by kind, and within a kind by number or name."""
    return (
        *(Reason(Kind.DEAD_LETTER, each.word, *text, each.value) for each, text in DEAD_LETTERS.items()),
        *(Reason(Kind.REMOVAL, each.word, text.meaning, text.action, each.value) for each, text in REMOVALS.items()),
        *(Reason(Kind.STAYS, word, *text) for word, text in STAYS.items()),
        *_refusals(),
        *sorted(_answers(), key=lambda reason: reason.number or 0),
        *(Reason(Kind.AMQP, word, *text, see=_causes(f"amqp {word}")) for word, text in AMQP.items()),
        *(_mqtt(code) for code in MQTT),
        *(Reason(Kind.STOMP, word, *text) for word, text in sorted(STOMP.items())),
        *(
            Reason(Kind.LOG, word, event.meaning, event.action or NOTHING, level=event.level)
            for word, event in EVENTS.items()
        ),
        *(Reason(Kind.EXIT, each.word, *text, each.value) for each, text in exit_status.TEXTS.items()),
        *(Reason(Kind.IBM_MQ, each.word, *each.text, each.number, see=each.see) for each in ibm_mq.CODES),
    )


def refusal_classes() -> dict[str, type[EngineError]]:
    """The engine's errors and those of the sessions, by code."""
    classes: list[type[EngineError]] = [*_classes(vars(errors).values()), mqtt_terms.TooMany]
    return {each.code: each for each in classes}


def _classes(values: Iterable[object]) -> Iterator[type[EngineError]]:
    return (v for v in values if isinstance(v, type) and issubclass(v, EngineError) and v is not EngineError)


def _refusals() -> Iterator[Reason]:
    for code, refusal in refusal_classes().items():
        action, status = REFUSALS[code]
        title = "" if status is None else code.replace("-", " ").capitalize()
        yield Reason(Kind.ERROR, code, _meaning(refusal), action, status, see=client_words(refusal), title=title)


def _answers() -> Iterator[Reason]:
    for code, (status, title, meaning, action) in PROBLEMS.items():
        yield Reason(Kind.HTTP, code, meaning, action, status, title=title)
    for word, (status, text) in ANSWERS.items():
        yield Reason(Kind.HTTP, word, *text, status)


def _meaning(refusal: type[EngineError]) -> str:
    """The first paragraph of the docstring, on one line."""
    return " ".join(inspect.cleandoc(refusal.__doc__ or "").partition("\n\n")[0].split())


def client_words(refusal: type[EngineError]) -> tuple[str, ...]:
    """What is sent to clients for a refusal, as `amqp CONDITION` and `mqtt REASON-CODE`."""
    error = refusal("")
    if refusal is errors.OntoItself:  # only operators move messages
        return ()
    codes = dict.fromkeys(mqtt_terms.refusal(error, subscribing=subscribing) for subscribing in (False, True))
    mqtt = [f"mqtt {mqtt_word(code)}" for code in codes if code is not ReasonCode.UNSPECIFIED_ERROR]
    amqp = [] if refusal is mqtt_terms.TooMany else [f"amqp {amqp_terms.condition(error)}"]
    return (*amqp, *mqtt)


@cache
def _causes(client_word: str) -> tuple[str, ...]:
    """The refusals for which this is sent to clients."""
    return tuple(f"error {code}" for code, refusal in refusal_classes().items() if client_word in client_words(refusal))


def mqtt_word(code: ReasonCode) -> str:
    """A reason code's name, as the specification writes it."""
    name = code.name.replace("_", " ").capitalize()
    return name.replace("Qos", "QoS").replace("Re authenticate", "Re-authenticate")


def _mqtt(code: ReasonCode) -> Reason:
    word = mqtt_word(code)
    return Reason(Kind.MQTT, word, *MQTT[code], code.value, RETURN_CODES.get(code), see=_causes(f"mqtt {word}"))
