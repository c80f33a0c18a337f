//go:build tools

// Package tools names the programs that go.mod pins beside the server.
package tools

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/etcdutl/v3"
)
