"""Command lines of the components: pure, so that a changed one is seen and restarted by ``up``."""

from pathlib import Path

from e2e.cluster.layout import Layout
from e2e.cluster.local import binaries, pki, settings
from e2e.cluster.local.processes import Program

CONTAINERD = "/usr/bin/containerd"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def all_programs(layout: Layout) -> tuple[Program, ...]:
    """Every component, in the order in which they start."""
    builders = (etcd, apiserver, controller_manager, scheduler, containerd, kubelet, kube_proxy, kube_router)
    return tuple(build(layout) for build in builders)


def etcd(layout: Layout) -> Program:
    """The store. Without fsync: a test cluster's data need not outlive a crash of the machine."""
    return _built(
        layout,
        "etcd",
        (
            f"--data-dir={layout.cluster}/etcd",
            f"--listen-client-urls={settings.ETCD_URL}",
            f"--advertise-client-urls={settings.ETCD_URL}",
            f"--listen-peer-urls={settings.ETCD_PEER_URL}",
            "--unsafe-no-fsync",
        ),
        ports=(2379, 2380),
    )


def apiserver(layout: Layout) -> Program:
    """The API server, on all addresses (the host's loopback and the node's are both used), with an audit log."""
    keys = layout.pki
    return _built(
        layout,
        "kube-apiserver",
        (
            f"--etcd-servers={settings.ETCD_URL}",
            f"--service-cluster-ip-range={settings.SERVICE_NETWORK}",
            f"--secure-port={settings.API_PORT}",
            f"--advertise-address={settings.NODE_ADDRESS}",
            f"--tls-cert-file={keys}/apiserver.crt",
            f"--tls-private-key-file={keys}/apiserver.key",
            f"--cert-dir={keys}/apiserver",
            f"--client-ca-file={keys}/ca.crt",
            f"--kubelet-client-certificate={keys}/apiserver-to-kubelet.crt",
            f"--kubelet-client-key={keys}/apiserver-to-kubelet.key",
            f"--kubelet-certificate-authority={keys}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={keys}/sa.key",
            f"--service-account-signing-key-file={keys}/sa.key",
            f"--service-account-issuer=https://kubernetes.default.svc.{settings.DNS_DOMAIN}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--audit-policy-file={layout.config}/audit-policy.json",
            f"--audit-log-path={layout.log}/audit.log",
            "--audit-log-maxsize=100",
            "--audit-log-maxbackup=3",
        ),
        ports=(settings.API_PORT,),
        config=layout.config / "audit-policy.json",
    )


def controller_manager(layout: Layout) -> Program:
    """The controllers."""
    return _built(
        layout,
        "kube-controller-manager",
        (
            f"--kubeconfig={pki.kubeconfig_path(layout, 'controller-manager')}",
            f"--service-account-private-key-file={layout.pki}/sa.key",
            f"--root-ca-file={layout.pki}/ca.crt",
            f"--cluster-signing-cert-file={layout.pki}/ca.crt",
            f"--cluster-signing-key-file={layout.pki}/ca.key",
            "--allocate-node-cidrs=true",
            f"--cluster-cidr={settings.CLUSTER_NETWORK}",
            f"--service-cluster-ip-range={settings.SERVICE_NETWORK}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ),
        ports=(10257,),
    )


def scheduler(layout: Layout) -> Program:
    """The scheduler."""
    config = f"--kubeconfig={pki.kubeconfig_path(layout, 'scheduler')}"
    return _built(layout, "kube-scheduler", (config, "--leader-elect=false", "--bind-address=127.0.0.1"), ports=(10259,))


def containerd(layout: Layout) -> Program:
    """The container runtime, a second one beside any that the host may run."""
    config = layout.config / "containerd.toml"
    return Program("containerd", (CONTAINERD, "--config", str(config)), config=config)


def kubelet(layout: Layout) -> Program:
    """The node's agent."""
    return _built(
        layout,
        "kubelet",
        (
            f"--config={layout.config}/kubelet.json",
            f"--kubeconfig={pki.kubeconfig_path(layout, 'kubelet')}",
            f"--hostname-override={settings.NODE}",
            f"--node-ip={settings.NODE_ADDRESS}",
            f"--root-dir={layout.cluster}/kubelet",
            f"--cert-dir={layout.pki}/kubelet",
        ),
        ports=(10250, 10248),
        config=layout.config / "kubelet.json",
    )


def kube_proxy(layout: Layout) -> Program:
    """Services, by iptables."""
    config = layout.config / "kube-proxy.json"
    return _built(layout, "kube-proxy", (f"--config={config}",), ports=(10256, 10249), config=config)


def kube_router(layout: Layout) -> Program:
    """NetworkPolicy, by iptables and ipset; the program is built without kube-router's other parts."""
    return _built(
        layout,
        "kube-router",
        (
            f"--kubeconfig={pki.kubeconfig_path(layout, 'kube-router')}",
            f"--hostname-override={settings.NODE}",
            f"--service-cluster-ip-range={settings.SERVICE_NETWORK}",
        ),
    )


def _built(
    layout: Layout, name: str, arguments: tuple[str, ...], *, ports: tuple[int, ...] = (), config: Path | None = None
) -> Program:
    return Program(name, (str(binaries.program(layout, name)), *arguments), ports, config)
