// Package laws judges hosts that embed the library by what an API server recorded of them: its audit log, kept by [Policy].
//
// The log is of one API server over one etcd, so the resourceVersions in its answers put all writes that were made in
// one order, whatever the resource.
package laws
