// Package argocd asks Argo CD Applications to sync.
package argocd
