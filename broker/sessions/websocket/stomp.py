"""STOMP over WebSocket, compatible with the browser clients of other brokers.

The subprotocols are named after the versions, but CONNECT decides on the version.  A client may offer no subprotocol.
A frame that is valid UTF-8 is sent as a text message, any other as a binary one, since browsers reject invalid text.
Clients may split frames across messages as they like.  The broker sends one frame per message, since many clients
ignore a second one.
"""

from __future__ import annotations

from broker.sessions.session import Session
from broker.sessions.stomp.session import StompSession
from broker.sessions.websocket.session import WebSocketSession


class StompWebSocketSession(WebSocketSession):
    """A STOMP session in a WebSocket."""

    takes_text = True
    bare = True
    _open = False  # a message has begun, and its last part has not been sent

    def _send_from(self, inner: Session) -> None:
        assert isinstance(inner, StompSession)
        frames, goes_on = inner.frames_to_send()
        for at, frame in enumerate(frames, 1):
            more = goes_on and at == len(frames)
            if self._open or more:  # a frame with a large body is one message in several fragments
                if self._open:
                    self._ws.send_continuation(frame, fin=not more)
                else:
                    self._ws.send_binary(frame, fin=False)
                self._open = more
                continue
            try:
                frame.decode()
            except UnicodeDecodeError:
                self._ws.send_binary(frame)
            else:
                self._ws.send_text(frame)
