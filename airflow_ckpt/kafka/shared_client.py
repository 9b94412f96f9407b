"""Admin clients that many streams share: a triggerer that watches a thousand streams must not have a thousand clients."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ckpt_stream.kafka.admin_client import admin_client

#: One client per cluster and user; few deployments have more than a handful.
KEEP = 16

_lock = threading.Lock()
_clients: OrderedDict[str, Any] = OrderedDict()


def shared_admin(kafka: Mapping[str, Any]) -> Any:
    """An admin client for these settings; the same client for the same settings, in one process."""
    key = sha256(json.dumps(dict(kafka), sort_keys=True, default=repr).encode()).hexdigest()
    with _lock:
        client = _clients.pop(key, None)
        # Not `or`: a client has the length of its queue, so it counts as false while it is idle.
        if client is None:
            client = admin_client(kafka)
        _clients[key] = client
        while len(_clients) > KEEP:
            _clients.popitem(last=False)
    return client
