"""Starts of a run, as a test describes them: a checkpoint, the last record of each lane, and the stream's settings."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt_stream.errors import Refused
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, reconcile
from ckpt_stream.protocol.run_files.adoption import Adoption
from tests.ckpt_stream.samples import checkpoint_at, sink_of

NO_BATCHES = checkpoint_at(None, None, None)
ADOPTED = Adoption("query-0", 7)


def start(
    checkpoint: IntactCheckpoint,
    *ledger: LedgerRecord | None,
    adopted: Adoption | None = None,
    adopt: bool = False,
    **sink: Any,
) -> Reconciliation:
    """What the start of a run finds; ``sink`` are settings such as ``lanes``."""
    return reconcile(checkpoint, ledger, sink_of(**sink), adopted, adopt_ledger=adopt)


def refusal_of(error: type[Refused], *args: Any, **kwargs: Any) -> Refused:
    """The refusal that the same start ends with."""
    with pytest.raises(error) as refusal:
        start(*args, **kwargs)
    return refusal.value
