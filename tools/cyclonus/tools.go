//go:build tools

// Package tools pins cyclonus, which judges by NetworkPolicies; build it with `go build -o DIR PACKAGE`.
package tools

import _ "github.com/mattfenwick/cyclonus/cmd/cyclonus"
