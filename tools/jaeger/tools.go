//go:build tools

// Package tools pins one program; build it with `go build -o DIR github.com/jaegertracing/jaeger/cmd/all-in-one`.
package tools

import _ "github.com/jaegertracing/jaeger/cmd/all-in-one"
