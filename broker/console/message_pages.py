"""The pages of messages: show one in full; retry, move or remove chosen or matching ones."""

from __future__ import annotations

from starlette.responses import Response

from broker.console.deaths import death_of
from broker.console.desk import Pages, Routes
from broker.console.groups import chosen_group, group_fields, values
from broker.console.messages import body_of, typed_digest
from broker.console.send_pages import properties
from broker.console.task_pages import stays, summary
from broker.console.visit import Refused, Visit, go_to, number
from broker.engine import Queue
from broker.engine.model.edit import UNCHANGED, Edit
from broker.engine.model.task import TaskKind, TaskRequest
from broker.management.callers import require_new_task, require_queue
from broker.management.durable import durable
from broker.management.looking import whole_body
from broker.management.models.messages import message_shown
from broker.management.operator_log import caller_fields
from store.counted import counted


class MessagePages(Pages):
    """The message pages of one broker."""

    def routes(self) -> Routes:
        """The pages."""
        return [
            ("GET", "/message", self.show, self._authorize),
            ("GET", "/message/body", self.download, self._authorize),
            ("POST", "/messages", self.act, self._authorize_action),
        ]

    def _authorize(self, visit: Visit) -> None:
        require_queue(visit.access, self._desk.engine, visit.text("queue"))

    def _authorize_action(self, visit: Visit) -> None:
        target = visit.text("to").strip() if visit.text("do") == "move" else ""
        edits = bool(_edit(visit)) and visit.text("do") != "remove"
        require_new_task(visit.access, self._desk.engine, visit.text("queue"), target, edits=edits)

    async def show(self, visit: Visit) -> Response:
        """One message."""
        desk, queue = self._desk, self._desk.engine.queue(visit.text("queue"))
        desk.enter()
        message, state = desk.engine.messages.find(queue, visit.id)
        found = message_shown(message, queue, state).model_dump()
        context = {"queue": queue, "message": found, "body": body_of(message), "death": death_of(message)}
        return desk.page(visit, "message.html", context)

    async def download(self, visit: Visit) -> Response:
        """The whole body of one message, for download."""
        queue = self._desk.engine.queue(visit.text("queue"))
        message, _ = self._desk.enter().messages.find(queue, visit.id)
        return whole_body(message)

    async def act(self, visit: Visit) -> Response:
        """Retry, move or remove the ticked messages, or all that match the filter, as a task."""
        queue, engine = self._desk.engine.queue(visit.text("queue")), self._desk.engine
        request = self._request(visit, queue)
        question = "" if visit.flag("confirmed") else _question(request, queue)
        if question:  # without JavaScript the browser has not asked
            fields = [(name, value) for name, values in visit.form.items() if name != "csrf" for value in values]
            context = {"question": question, "fields": fields, "action": "/messages", "queue": queue.name}
            return self._desk.page(visit, "confirm.html", context)
        task = self._desk.enter().tasks.start(request)
        await durable(engine)
        if not task.state.ended or request.dry_run:
            return go_to("/task", id=task.id)
        visit.done(summary(task))
        for warning in stays(task):
            visit.warn(warning)
        if queue.delivering and not request.ids:
            what = ("message is with a consumer and was", "messages are with consumers and were")
            visit.warn(f"{counted(queue.delivering, *what)} left there.")
        back = visit.text("back")
        if back == "message" and request.ids and not task.progress.moved:
            return go_to("/message", queue=queue.name, id=request.ids[0])
        if back == "dead-letters":
            return go_to("/dead-letters")
        return go_to("/queue", group_fields(chosen_group(visit)), name=queue.name, filter=visit.text("filter").strip())

    def _request(self, visit: Visit, queue: Queue) -> TaskRequest:
        """The task requested by a form.  Raises Refused."""
        do, to = visit.text("do"), visit.text("to").strip()
        kinds = {"retry": TaskKind.RETRY, "move": TaskKind.MOVE, "remove": TaskKind.PURGE}
        if do not in kinds:
            raise Refused("do is retry, move or remove")
        if do == "move" and not to:
            raise Refused("name the address or queue to move the messages to")
        ids, everything = [number(text, "id") for text in visit.every("id")], visit.flag("all")
        if not (ids or everything):
            raise Refused("choose messages first, or all that match the filter")
        group = chosen_group(visit) if everything else None
        return TaskRequest(
            kind=kinds[do],
            queue=queue.name,
            filter=visit.text("filter").strip() if everything else "",
            ids=() if everything else tuple(ids),
            group={} if group is None else {name.replace("-", "_"): value for name, value in values(group).items()},
            target=to if do == "move" else "",
            first_origin=do == "retry" and visit.flag("first-origin"),
            edit=_edit(visit) if do != "remove" else UNCHANGED,
            dry_run=visit.flag("dry-run"),
            rate=visit.number("rate"),
            by=caller_fields(visit.request, visit.access),
            identity=visit.access.identity,
        )


def _question(request: TaskRequest, queue: Queue) -> str:
    """What to ask before messages are moved or removed; empty: nothing, for a single message or a count."""
    ends = {TaskKind.MOVE: f" to {request.target}", TaskKind.PURGE: " for good"}
    if request.kind not in ends or request.dry_run or len(request.ids) == 1:
        return ""
    verb = "Move" if request.kind is TaskKind.MOVE else "Remove"
    has = counted(queue.message_count, "message", "messages")
    if request.ids:
        what = f"{counted(len(request.ids), 'message', 'messages')} of queue {queue.name}"
    elif request.group or request.filter:
        which = (" of the group" if request.group else "") + (f" that match {request.filter}" if request.filter else "")
        what = f"all messages{which} of queue {queue.name}, which has {has},"
    else:
        what = f"all {has} of queue {queue.name}"
    return f"{verb} {what}{ends[request.kind]}?"


def _edit(visit: Visit) -> Edit:
    """The edit of messages requested by a form.  Raises Refused."""
    removed = tuple(filter(None, map(str.strip, visit.text("unset").split(","))))
    body = visit.text("body")  # as the form showed it, or as the operator left it: what is seen is what is sent
    shown = "body" in visit.form and "body-before" in visit.form
    changed = shown and typed_digest(body) != visit.text("body-before")
    return Edit(removed, properties(visit, "set"), visit.lines("body") if changed else None)
