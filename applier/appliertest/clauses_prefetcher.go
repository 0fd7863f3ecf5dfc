package appliertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

var prefetcherClauses = []clause{
	{
		group: "Prefetcher", name: "lists the consumers of a source",
		text:  "Consumers lists the objects that apply from the source, sorted by kind, namespace and name",
		needs: []Capability{Prefetcher, API},
		check: consumersListed,
	},
	{
		group: "Prefetcher", name: "knows no consumers after an error",
		text:  "after any error of Consumers nothing is known",
		needs: []Capability{Prefetcher, API},
		check: consumersUnknown,
	},
	{
		group: "Prefetcher", name: "makes the source fetch and applies nothing",
		text:  "Prefetch makes the source fetch now; once the source holds the commit, it is ErrNotPrefetched; nothing is applied",
		needs: []Capability{Prefetcher, API},
		check: prefetches,
	},
	{
		group: "Prefetcher", name: "leaves a source alone that was not checked",
		text:  "an applier that applies from another source than the one that was checked is ErrPrefetchHeld; nothing is written",
		needs: []Capability{Prefetcher, API},
		check: prefetchHeld,
	},
}

// source returns the source object of the applier.
func (s *subject) source(ctx context.Context) (applier.Prefetcher, types.NamespacedName, error) {
	prefetcher, _ := applier.AsPrefetcher(s.client)
	verdict := s.client.Validate(ctx, s.Ref)
	if verdict.Source == nil || verdict.Source.GitRepository.Name == "" {
		return nil, types.NamespacedName{}, fmt.Errorf("Validate reports no source object: %+v", verdict)
	}
	return prefetcher, verdict.Source.GitRepository, nil
}

func consumersListed(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	like, err := s.object(ctx)
	if err != nil {
		return err
	}
	for _, suffix := range []string{"-z", "-a"} {
		if _, err := s.create(ctx, like, s.Ref.Name+suffix); err != nil {
			return err
		}
	}
	prefetcher, source, err := s.source(ctx)
	if err != nil {
		return err
	}
	consumers, err := prefetcher.Consumers(ctx, source)
	if err != nil {
		return fmt.Errorf("Consumers: %w", err)
	}
	for _, name := range []string{s.Ref.Name, s.Ref.Name + "-a", s.Ref.Name + "-z"} {
		if !slices.ContainsFunc(consumers, func(c fluxmeta.NamespacedObjectKindReference) bool {
			return c.Namespace == s.Ref.Namespace && c.Name == name && c.Kind != ""
		}) {
			return fmt.Errorf("%s/%s applies from %s, and Consumers lists %+v", s.Ref.Namespace, name, source, consumers)
		}
	}
	if !slices.IsSortedFunc(consumers, func(a, b fluxmeta.NamespacedObjectKindReference) int {
		return strings.Compare(a.Kind+"\x00"+a.Namespace+"\x00"+a.Name, b.Kind+"\x00"+b.Namespace+"\x00"+b.Name)
	}) {
		return fmt.Errorf("Consumers are not sorted: %+v", consumers)
	}
	none, err := prefetcher.Consumers(ctx, types.NamespacedName{Namespace: source.Namespace, Name: source.Name + "-missing"})
	if err != nil || len(none) > 0 {
		return fmt.Errorf("a source that nobody applies from has the consumers %+v, %w", none, told(err))
	}
	return nil
}

func consumersUnknown(ctx context.Context, e *env) error {
	which := func(_ *subject, r *request) bool { return r.verb == "list" || r.verb == "get" }
	return e.sweep(ctx, sweep{what: "with a 500", which: which, strike: answers(internalError), flow: func(ctx context.Context, s *subject, h *hit) error {
		strikes := s.wire.pause()
		prefetcher, source, err := s.source(ctx)
		if err != nil {
			return err
		}
		s.wire.on(strikes)
		consumers, err := prefetcher.Consumers(ctx, source)
		switch _, kept := status(err); {
		case h.request() == nil:
			return err
		case err == nil:
			return fmt.Errorf("a list failed, and Consumers returned %+v and no error", consumers)
		case len(consumers) > 0:
			return fmt.Errorf("Consumers returned an error, and beside it %+v", consumers)
		case !kept:
			return fmt.Errorf("the API server's error is not in that of Consumers: %w", err)
		}
		return nil
	}})
}

func prefetches(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	before, err := s.Applied(ctx)
	if err != nil {
		return err
	}
	prefetcher, source, err := s.source(ctx)
	if err != nil {
		return err
	}
	s.wire.forget()
	err = prefetcher.Prefetch(ctx, s.Ref, source, commit)
	if errors.Is(err, applier.ErrNotPrefetched) {
		// It may have fetched on its own; then there is nothing to be seen.
		return s.untouched("by Prefetch")
	}
	if err != nil {
		return fmt.Errorf("Prefetch: %w", err)
	}
	if err := s.until(ctx, func() error {
		if err := prefetcher.Prefetch(ctx, s.Ref, source, commit); !errors.Is(err, applier.ErrNotPrefetched) {
			return fmt.Errorf("the source was made to fetch and holds the commit, and Prefetch returns: %w", told(err))
		}
		return nil
	}); err != nil {
		return err
	}
	return errors.Join(s.unchanged(ctx, before, "the source was made to fetch"), s.untouched("by Prefetch"))
}

func prefetchHeld(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	prefetcher, source, err := s.source(ctx)
	if err != nil {
		return err
	}
	source.Name += "-before"
	s.wire.forget()
	if err := prefetcher.Prefetch(ctx, s.Ref, source, commit); !errors.Is(err, applier.ErrPrefetchHeld) {
		return fmt.Errorf("the consumers of another source were checked, and Prefetch returned: %w", told(err))
	}
	for _, r := range s.wire.requests() {
		if r.writes() {
			return fmt.Errorf("the consumers of another source were checked, and Prefetch sent %v", r)
		}
	}
	return nil
}
