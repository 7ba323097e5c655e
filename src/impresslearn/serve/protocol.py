"""HTTP by uvicorn with httptools, a parser in C that has no limits of its own."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_UNREAD = 16 * 1024  # bytes of headers that arrive in parts, as in h11, or of trailers
MAX_AHEAD = 16  # requests that a connection sends before the first of them is answered


class LimitedProtocol(HttpToolsProtocol):
    """Answers 400 to endless headers or trailers, and to too many requests sent ahead."""

    _unread = 0  # bytes since the last headers or the last part of a body were complete

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MAX_UNREAD and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        self._unread = 0
        if len(self.pipeline) >= MAX_AHEAD:
            raise ValueError("too many requests sent ahead")  # which answers 400, too
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)
