//go:build tools

// Package tools pins the definitions of PodMonitor and PrometheusRule. They are files of the Prometheus operator's module, and
// nothing of it is built.
package tools
