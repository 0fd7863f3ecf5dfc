// The lab takes only the HelmRelease CRD from helm-controller; the controller
// itself is not built.
module github.com/gitops-applier/gitops-applier/examples/lab/tools/helm

go 1.26.0

require github.com/fluxcd/helm-controller v1.6.4
