"""The cluster's certificate authority, one client certificate and kubeconfig for each component; by openssl.

A file that exists is kept, so ``up`` on a running cluster changes no key.
"""

import base64
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.layout import Layout
from e2e.cluster.local import settings

DAYS = "3650"
MASTERS = "/O=system:masters"
API_NAMES = (
    "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,"
    f"DNS:kubernetes.default.svc.{settings.DNS_DOMAIN},"
    f"IP:127.0.0.1,IP:{settings.NODE_ADDRESS},IP:{settings.API_SERVICE_ADDRESS}"
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a certificate says: its subject, and the names it may serve under."""

    subject: str
    names: str = "DNS:localhost"


# kube-router has the rights of an administrator: a role of its own would protect nothing on a cluster for tests.
CERTIFICATES: Mapping[str, Certificate] = {
    "apiserver": Certificate("/CN=kube-apiserver", API_NAMES),
    "apiserver-to-kubelet": Certificate(f"{MASTERS}/CN=kube-apiserver-kubelet-client"),
    "admin": Certificate(f"{MASTERS}/CN=kubernetes-admin"),
    "controller-manager": Certificate("/CN=system:kube-controller-manager"),
    "scheduler": Certificate("/CN=system:kube-scheduler"),
    "kube-proxy": Certificate("/CN=system:kube-proxy"),
    "kube-router": Certificate(f"{MASTERS}/CN=kube-router"),
    "kubelet": Certificate(f"/O=system:nodes/CN=system:node:{settings.NODE}", f"DNS:{settings.NODE},IP:{settings.NODE_ADDRESS}"),
}
CLIENTS = ("admin", "controller-manager", "scheduler", "kube-proxy", "kube-router", "kubelet")


def create(layout: Layout) -> None:
    """Creates every key, certificate and kubeconfig that is missing."""
    layout.pki.mkdir(mode=0o700, parents=True, exist_ok=True)
    _create_authority(layout.pki)
    for name, certificate in CERTIFICATES.items():
        _create_certificate(layout.pki, name, certificate)
    if not (layout.pki / "sa.key").exists():
        # RSA: verifiers of service account tokens often know RS256 only.
        _rename_when_done(layout.pki, ["openssl", "genrsa", "-out", "sa.key", "2048"], "sa.key")
    for name in CLIENTS:
        _write_kubeconfig(layout, name)


def kubeconfig_path(layout: Layout, client: str) -> Path:
    """Gives the kubeconfig of a component; the administrator's is the cluster's own."""
    return layout.kubeconfig if client == "admin" else layout.pki / f"{client}.kubeconfig"


def kubeconfig(server: str, *, authority: bytes, certificate: bytes, key: bytes) -> str:
    """Renders a kubeconfig that needs no other file (JSON is YAML)."""

    def encoded(content: bytes) -> str:
        return base64.b64encode(content).decode()

    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    cluster = {"server": server, "certificate-authority-data": encoded(authority)}
    name = "cachescope-local"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        indent=1,
    )


def _rename_when_done(folder: Path, argv: list[str], *names: str) -> None:
    """Runs openssl in a folder of its own and moves what it wrote, the last name last."""
    with tempfile.TemporaryDirectory(dir=folder) as partial:
        run(argv, cwd=partial)
        for name in names:
            (Path(partial) / name).rename(folder / name)


def _create_authority(folder: Path) -> None:
    if (folder / "ca.crt").exists():
        return
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "ca.key"]
    argv = ["openssl", "req", "-x509", *new_key, "-out", "ca.crt", "-days", DAYS, "-subj", "/CN=cachescope-local-ca"]
    _rename_when_done(folder, argv, "ca.key", "ca.crt")


def _create_certificate(folder: Path, name: str, certificate: Certificate) -> None:
    if (folder / f"{name}.crt").exists():
        return
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-CA", str(folder / "ca.crt"), "-CAkey", str(folder / "ca.key"), "-days", DAYS]
    argv += ["-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", certificate.subject]
    argv += ["-addext", f"subjectAltName={certificate.names}", "-addext", "basicConstraints=critical,CA:FALSE"]
    _rename_when_done(folder, argv, f"{name}.key", f"{name}.crt")


def _write_kubeconfig(layout: Layout, client: str) -> None:
    path = kubeconfig_path(layout, client)
    host = "127.0.0.1" if client == "admin" else settings.NODE_ADDRESS
    text = kubeconfig(
        f"https://{host}:{settings.API_PORT}",
        authority=(layout.pki / "ca.crt").read_bytes(),
        certificate=(layout.pki / f"{client}.crt").read_bytes(),
        key=(layout.pki / f"{client}.key").read_bytes(),
    )
    path.touch(mode=0o600)
    path.write_text(text)
