// Package flux asks Flux Kustomizations to apply.
package flux
