//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "relaybench: it reads /proc and drives its sockets with epoll, so it runs on Linux only")
	os.Exit(2)
}
