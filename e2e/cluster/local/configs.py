"""Configuration files of the components, rendered from the layout; JSON where YAML is read, for it is YAML."""

import json
from pathlib import Path

from e2e.cluster.layout import Layout
from e2e.cluster.local import pki, settings

RESOLV_CONF = "/etc/resolv.conf"
# systemd-resolved's stub listens on the host's loopback, which no pod reaches; its other file names the real servers.
RESOLVED_CONF = "/run/systemd/resolve/resolv.conf"


def containerd(layout: Layout) -> str:
    """Renders containerd's configuration.

    ``restrict_oom_score_adj``: without CAP_SYS_RESOURCE, runc could start no sandbox at the score that Kubernetes asks
    for. ``netns_mounts_under_state_dir`` keeps every mount of ours below our folder.
    """
    return f'''version = 2
root = "{layout.images}"
state = "{layout.cluster}/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{layout.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  sandbox_image = "{settings.PAUSE_IMAGE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{settings.CNI_PROGRAMS}"
    conf_dir = "{layout.config}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
'''


def cni(layout: Layout) -> str:
    """Renders the pod network: one bridge, addresses from the node's range."""
    ipam = {
        "type": "host-local",
        "dataDir": f"{layout.cluster}/ipam",
        "ranges": [[{"subnet": settings.POD_NETWORK}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": settings.POD_BRIDGE,
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": ipam,
    }
    plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return json.dumps({"cniVersion": "0.4.0", "name": settings.CNI_NETWORK_NAME, "plugins": plugins}, indent=1)


def kubelet(layout: Layout, *, resolv_conf: str) -> str:
    """Renders the kubelet's configuration: it evicts late and collects no images, for nothing can be pulled again."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{layout.pki}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{layout.pki}/kubelet.crt",
            "tlsPrivateKeyFile": f"{layout.pki}/kubelet.key",
            "containerRuntimeEndpoint": f"unix://{layout.socket}",
            "cgroupDriver": "cgroupfs",
            "podLogsDir": f"{layout.cluster}/pod-logs",
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "clusterDNS": [settings.DNS_SERVICE_ADDRESS],
            "clusterDomain": settings.DNS_DOMAIN,
            "resolvConf": resolv_conf,
            # Fault tests end the same containers again and again; by default the next start may come minutes later.
            "featureGates": {"KubeletCrashLoopBackOffMax": True},
            "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
        },
        indent=1,
    )


def kube_proxy(layout: Layout) -> str:
    """Renders kube-proxy's configuration; the host's conntrack limits stay as they are."""
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(pki.kubeconfig_path(layout, "kube-proxy"))},
            "mode": "iptables",
            "clusterCIDR": settings.CLUSTER_NETWORK,
            "hostnameOverride": settings.NODE,
            "nodePortAddresses": ["primary"],
            "iptables": {"localhostNodePorts": False},
            "oomScoreAdj": 0,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        },
        indent=1,
    )


def audit_policy() -> str:
    """Renders the audit policy: who wrote what, never a body (it may hold a secret)."""
    writes = {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]}
    return json.dumps(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [writes, {"level": "None"}],
        },
        indent=1,
    )


def write(layout: Layout) -> None:
    """Writes all files."""
    resolv_conf = RESOLVED_CONF if Path(RESOLVED_CONF).exists() else RESOLV_CONF
    files = {
        "containerd.toml": containerd(layout),
        "cni/10-cachescope.conflist": cni(layout),
        "kubelet.json": kubelet(layout, resolv_conf=resolv_conf),
        "kube-proxy.json": kube_proxy(layout),
        "audit-policy.json": audit_policy(),
    }
    for name, text in files.items():
        path = layout.config / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:  # kube-proxy ends when its file is touched
            path.write_text(text)
