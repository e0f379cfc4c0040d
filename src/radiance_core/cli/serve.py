"""``radiance --model X``: in which order a server's parts are imported, begun and waited for.

Most of a start is Python, and one thread runs Python at a time. So what needs no Python begins as
early as it can: the template's process before all else, and C's laying out of the weights before
the server is imported.
"""

import os
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from radiance_core.cli.beside import Beside
from radiance_core.cli.logs import configure_logs
from radiance_core.cli.model_settings import build_settings, local_model, max_queued, resolve_model
from radiance_core.config import Config
from radiance_core.server.ports import open_port
from radiance_core.server.settings import MIB, MOST_CHOICES, ServerSettings
from radiance_core.text.template_process import TemplateProcess
from radiance_core.without import held_back

if TYPE_CHECKING:
    from radiance_core.build import Plan
    from radiance_core.cli.loading import Loaded
    from radiance_core.server.tracing import Tracing

_WEIGHTS_FIRST_S = 0.5
"""How long the server may wait to be imported until C lays weights out."""


def serve(config: Config, templates: TemplateProcess) -> int:
    """Serve until a signal; return the exit status.

    Args:
        config: the settings.
        templates: a process for the chat template, which starts while this one loads.
    """
    started = time.monotonic()
    configure_logs(config.text("log-level"), config.text("log-format"))
    local = local_model(config.text("model"))  # A misspelt path is told before anything is bound.
    tracing = _tracing(config)
    if config.flag("debug-graph"):
        print(_graph(config))
        return 0
    settings = server_settings(config)
    sockets = open_port(settings)
    signal.signal(signal.SIGTERM, _end)  # as the server does when it is there
    load = Beside("load", partial(_load, config, started, templates))
    load.start()
    if local is not None:
        load.wait_begun(_WEIGHTS_FIRST_S)
    import asyncio

    from radiance_core.cli.serving import run_server

    status, is_closed = asyncio.run(run_server(config, settings, sockets, load, tracing))
    if tracing is not None:
        tracing.close()
    if load.is_busy or not is_closed:
        # A signal came while the model was being loaded, or a kernel does not return. Neither holds
        # anything that needs an orderly end, and to wait can take minutes.
        sys.stdout.flush()
        os._exit(status)
    return status


def _end(*_: object) -> None:
    """End in order at a signal that comes before anything is served: there is nobody to tell."""
    os._exit(0)


def _graph(config: Config) -> str:
    from radiance_core.build import plan_model
    from radiance_core.resolve.report import graph_text

    settings = build_settings(config, resolve_model(config.text("model")))
    return graph_text(plan_model(settings).resolution.nodes)


def _tracing(config: Config) -> "Tracing | None":
    """Return what sends traces, when there is somewhere to send them."""
    if config.values["otlp-endpoint"] is None:
        return None
    from radiance_core.discover import core_version
    from radiance_core.server.tracing import Tracing

    return Tracing(config.text("otlp-endpoint"), core_version())


def _load(
    config: Config, started: float, templates: TemplateProcess, load: "Beside[tuple[Loaded, Plan]]"
) -> "tuple[Loaded, Plan]":
    """Plan, say what is planned, and load; return the plan too."""
    _import_numpy()
    from radiance_core.build import begin_loading, plan_model

    plan = plan_model(build_settings(config, resolve_model(config.text("model"))))
    loading = begin_loading(plan, load.begun)
    from radiance_core.cli.loading import keep_what_is_loaded, load_all
    from radiance_core.cli.told import tell_plan, tell_ready

    tell_plan(plan, config)
    loaded = load_all(plan, config, templates, loading)
    loaded.engine.start()
    keep_what_is_loaded()
    tell_ready(loaded.model, plan, started)
    return loaded, plan


def _import_numpy() -> None:
    """Import numpy without the texts of its help, which are a fifth of it."""
    with held_back("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars"):
        import numpy  # noqa: F401 (all that follows finds it imported)


def server_settings(config: Config) -> ServerSettings:
    """Return the HTTP server's settings."""
    return ServerSettings(
        host=config.text("host"),
        port=config.number("port"),
        api_keys=config.names("api-key"),
        insecure=config.flag("insecure"),
        served_model_names=config.names("served-model-name"),
        allowed_hosts=config.names("allowed-host"),
        cors_origins=config.names("cors-origin"),
        strict_requests=config.flag("strict-requests"),
        max_body_bytes=config.number("max-body-mib") * MIB,
        # What can never run and wait together is refused for good, not told to come back.
        max_choices=min(MOST_CHOICES, config.number("max-num-seqs") + max_queued(config)),
        drain_timeout_s=config.real("drain-timeout"),
    )
