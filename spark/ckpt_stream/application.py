"""`run(transform)`: the function that a streaming application calls."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from ckpt_stream.driver.driver import Driver
from ckpt_stream.errors import ConfigError
from ckpt_stream.machine.application_input import delete_secrets_file, find_document
from ckpt_stream.protocol.settings.config import from_json
from ckpt_stream.spark.session import stream_session
from ckpt_stream.spark.transform import Transform
from ckpt_stream.verify.recompute import run as run_recompute
from ckpt_stream.verify.recompute_documents import take_request

log = logging.getLogger("ckpt_stream")


def run(transform: Transform, *, output_mode: str = "append", argv: Sequence[str] | None = None) -> NoReturn:
    """Run the stream whose configuration was passed to the application; never returns.

    ``output_mode`` is the default output mode of the application; the stream's configuration may choose another one.
    If the configuration holds ``"recompute": {"result": <file>}``, the transform runs over the stream's source range once
    more, and its output is compared with the sink.

    The exit code is 0 if the stream was stopped or has finished. Otherwise the reason is the last line of the log, and in the
    run record.
    """
    delete_secrets_file()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        request, document = take_request(find_document(sys.argv if argv is None else argv))
        config = from_json(document)
    except ConfigError as e:
        print(f"ckpt_stream: {e}", file=sys.stderr, flush=True)
        sys.exit(2)
    spark = stream_session(config)
    config = replace(config, output_mode=config.output_mode or output_mode)
    if request is None:
        code, last_line = Driver(spark, config, transform).run()
    else:
        code, last_line = run_recompute(spark, config, transform, request)
    spark.stop()
    print(last_line, file=sys.stderr, flush=True)
    sys.exit(code)
