"""Names and addresses of the local cluster; the README says how they fit together."""

NODE = "cachescope"
NODE_BRIDGE = "cachescope0"
NODE_ADDRESS = "10.200.0.1"

POD_BRIDGE = "cachescope-cni0"
POD_NETWORK = "10.244.0.0/24"
CLUSTER_NETWORK = "10.244.0.0/16"
CNI_NETWORK_NAME = "cachescope"

SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_SERVICE_ADDRESS = "10.96.0.10"
DNS_DOMAIN = "cluster.local"

API_PORT = 6443
ETCD_URL = "http://127.0.0.1:2379"
ETCD_PEER_URL = "http://127.0.0.1:2380"

PAUSE_IMAGE = "localhost/cachescope/pause:1"
DNS_IMAGE = "localhost/cachescope/coredns"
CNI_PROGRAMS = "/usr/lib/cni"
IMAGE_NAMESPACE = "k8s.io"
