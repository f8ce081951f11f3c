//go:build tools

// Package tools pins Kueue, which admits jobs to quota; build it with `go build -o DIR PACKAGE`.
package tools

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
