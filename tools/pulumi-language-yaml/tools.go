//go:build tools

// Package tools pins one program; build it with `go build -o DIR github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml`.
package tools

import _ "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml"
