//go:build tools

// Package tools pins kubeconform, which compares manifests with JSON schemas; build it with `go build -o DIR PACKAGE`.
package tools

import _ "github.com/yannh/kubeconform/cmd/kubeconform"
