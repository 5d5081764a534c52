"""Single calls over HTTP, for scripts."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx2

from .agent import credentials
from .errors import refused

TIMEOUT_SECONDS = 330.0
"""Longer than the longest wait of a call."""


class Client:
    """Calls of `/v1`, as the OpenAPI document of the server has them."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx2.Client(base_url=url.rstrip("/") + "/v1", headers=headers, timeout=TIMEOUT_SECONDS)

    @classmethod
    def from_env(cls) -> Client:
        """The agent or human whose token is in `LASTWORD_TOKEN` or in the file `LASTWORD_TOKEN_FILE`."""
        return cls(*credentials())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def call(self, method: str, path: str, *parts: str, key: str | None = None, body: Any = None, **query: Any) -> Any:
        """Makes a call: `call("POST", "/agents/{}/stop", "kilo")`. Returns its result; `None` if it has none."""
        address = path.format(*(quote(part, safe="") for part in parts))
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self._http.request(method, address, params=query, headers=headers, json=body)
        if answer.is_success:
            return answer.json() if answer.content else None
        raise refused(answer.json())
