// Command etcd is etcd's own server: its package has no name of its own that a build could take.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
