// Package appliertest checks that a backend keeps the contract of package applier.
package appliertest
