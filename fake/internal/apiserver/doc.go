// Package apiserver answers requests as kube-apiserver 1.36 does, from memory.
//
// A [Server] takes one parsed [Request] at a time and gives one [Response]. It has no listener and no
// goroutine: a request is processed on the caller's goroutine, and a watch is a stream that its reader drives.
// That is what lets it run inside a testing/synctest bubble.
//
// Custom resources follow their CustomResourceDefinition: pruning, defaulting and validation by the structural
// schema, without the rules written in CEL. Built-in kinds are decoded into their Go types, so that their JSON
// has the shape the real server gives it, with the defaults and checks that tests of GitOps tools meet.
// Managed fields are apimachinery's own, over the schemas a real API server publishes.
package apiserver
