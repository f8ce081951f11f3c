//go:build tools

// Package tools pins one program; build it with `go build -o DIR github.com/pulumi/pulumi/sdk/v3/nodejs/cmd/pulumi-language-nodejs`.
package tools

import _ "github.com/pulumi/pulumi/sdk/v3/nodejs/cmd/pulumi-language-nodejs"
