//go:build tools

// Package tools pins kube-score, a linter of manifests; build it with `go build -o DIR PACKAGE`.
package tools

import _ "github.com/zegl/kube-score/cmd/kube-score"
