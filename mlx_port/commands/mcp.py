"""`mlx-port mcp`: the flags. `agents`, imported when the command runs, does the work."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import click

from tts_core.errors import NotFoundError, UsageError
from tts_core.extras import install


@click.command()
@click.option("--model", metavar="PATH", help="Converted folder.  [default: the embedded voice]")
@click.option("--url", metavar="URL", help="Speak with a running server, as http://127.0.0.1:8000.")
@click.option("--api-key", envvar="MLX_PORT_API_KEY", help="Key of the server; better as MLX_PORT_API_KEY.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def mcp(model: str | None, url: str | None, api_key: str | None) -> None:
    """Let agents speak: the tools speak and voices, in the Model Context Protocol over stdio."""
    if model is not None and url is not None:
        raise UsageError("url: the server has its own model; leave --model or --url out")
    if url is not None and not url.startswith(("http://", "https://")):
        raise UsageError("url: give the server's address as http://HOST:PORT")
    if find_spec("mcp") is None:
        raise NotFoundError(f"mcp: it is not installed; {install('mcp')}")
    import_module("mlx_port.commands.agents").run(model, url, api_key)
