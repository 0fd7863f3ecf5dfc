// Package hoststore is the [applier.Store] of a host with custom resources of its own: ApplyTriggers and DeliveryTargets of
// the group delivery.example.com, defined in crds.yaml. It shows how little such a store needs: it reads and writes through
// one dynamic.Interface, past any cache, and leaves it to the API server to refuse a write over what changed.
//
// An ApplyTrigger keeps the library's record as it is, in status.record, beside whatever the host shows in its status.
// A DeliveryTarget carries the host's judgement of it in status.admission.
package hoststore
