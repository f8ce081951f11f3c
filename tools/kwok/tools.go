//go:build tools

// Package tools pins KWOK, which keeps nodes without a kubelet; build it with `go build -o DIR PACKAGE`.
package tools

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
