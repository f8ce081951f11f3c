//go:build tools

// Package tools pins the two controllers behind a TrainJob; build them with `go build -o DIR PACKAGE`. Trainer makes a JobSet of
// each TrainJob, and requires the version of JobSet that is built beside it.
package tools

import (
	_ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
	_ "sigs.k8s.io/jobset"
)
