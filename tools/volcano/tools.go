//go:build tools

// Package tools pins the types of Volcano's PodGroup. They are files of the module, and nothing of it is built.
package tools
