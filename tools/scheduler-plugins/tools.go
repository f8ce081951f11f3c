//go:build tools

// Package tools pins Kubernetes' scheduler with the plugins of its special interest group, coscheduling among them; build
// it with `go build -o DIR PACKAGE`.
package tools

import (
	_ "sigs.k8s.io/scheduler-plugins/cmd/scheduler"
)
