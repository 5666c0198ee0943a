"""`aot sign`: put an Ed25519 signature on an artifact."""
from __future__ import annotations

import click

from ._output import stage


@click.command("sign")
@click.argument("file", required=False)
@click.option("--key", "-k", metavar="PEM", help="The private key to sign with.")
@click.option("--output", "-o", metavar="FILE", help="Write the signed artifact here.  [default: in place]")
@click.option("--new-key", metavar="PEM", help="Make a key instead: the private one in this file, the public one in PEM.pub.")
def command(file: str | None, key: str | None, output: str | None, new_key: str | None) -> None:
    """Sign the artifact FILE with a private key.

    \b
    aot sign --new-key release.pem
    aot sign model.aot --key release.pem
    aot verify model.aot --key release.pem.pub

    A loader accepts only signed files when it is given the keys to trust: load(path, trusted_keys=["release.pem.pub"]).
    """
    from aot import signing
    if (new_key is None) == (file is None or key is None):
        raise click.UsageError("give FILE and --key, or --new-key")
    if new_key is not None:
        click.echo(f"{new_key}: private key, to be kept secret; {signing.new_key(new_key)}: public key")
        return
    assert file is not None and key is not None
    with stage(f"signing {file}"):
        public = signing.sign(file, key, output)
    click.echo(f"{output or file}: signed by {public}")
