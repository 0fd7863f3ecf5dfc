package appliertest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

var validateClauses = []clause{
	{
		group: "Validate", name: "accepts an applier that may be asked",
		text:  "Validate says whether the applier exists, applies a source that can be driven, and may be asked by this identity",
		check: validateAccepts,
	},
	{
		group: "Validate", name: "reports the source",
		text:  "Validate reports the source it read: the repository without user info, and the branch",
		check: validateReportsSource,
	},
	{
		group: "Validate", name: "writes nothing",
		text:  "Validate writes nothing to the applier",
		needs: []Capability{API},
		check: validateWritesNothing,
	},
	{
		group: "Validate", name: "tells an applier that does not exist",
		text:  "an object that does not exist is ReasonApplierNotFound, and the message names the object and its cluster",
		check: validateMissing,
	},
	{
		group: "Validate", name: "tells a kind that is not served from an object that does not exist",
		text:  "a kind that is not served is ReasonApplierNotFound, and the message says which of the two it is",
		needs: []Capability{API},
		check: validateNotServed,
	},
	{
		group: "Validate", name: "tells an identity that may not read",
		text:  "an identity that may not read what a request needs is ReasonForbidden, which says nothing about the object",
		needs: []Capability{API},
		check: validateForbidden,
	},
	{
		group: "Validate", name: "tells an identity that may not write",
		text:  "an identity that may not write what a request needs is ReasonForbidden, and the source is reported all the same",
		needs: []Capability{API},
		check: validateMayNotWrite,
	},
	{
		group: "Validate", name: "says nothing after a read that failed",
		text:  "a read that failed is a verdict with ReasonCheckFailed, whose Err is the error of the API server",
		needs: []Capability{API},
		check: validateCheckFailed,
	},
	{
		group: "Validate", name: "sees a new source",
		text:  "a Client keeps no state between calls: Validate reports the source as it is now",
		needs: []Capability{Retarget},
		check: validateSeesNewSource,
	},
}

// refuses returns what is wrong with a verdict that is to refuse for a reason.
func (s *subject) refuses(verdict applier.Verdict, reason string) error {
	if verdict.OK || verdict.Reason != reason {
		return fmt.Errorf("the verdict is OK=%v, reason %q, instead of a refusal with %q: %s", verdict.OK, verdict.Reason, reason, verdict.Message)
	}
	if (verdict.Err != nil) != (reason == applier.ReasonCheckFailed) {
		return fmt.Errorf("reason %s, and Verdict.Err, which goes with ReasonCheckFailed alone, is: %w", reason, told(verdict.Err))
	}
	if wrong := s.names(verdict.Message, s.Ref); wrong != nil {
		return fmt.Errorf("the verdict's message is not for people: %w", wrong)
	}
	return nil
}

// rightSource returns what is wrong with the source of a verdict.
func (s *subject) rightSource(source *applier.Source) error {
	switch {
	case source == nil:
		return errors.New("the verdict has no Source")
	case !gitref.SameRepository(source.URL, s.Want.Repository):
		return fmt.Errorf("the source's URL is %q, and the applier applies from %q", source.URL, s.Want.Repository)
	case gitref.Redact(source.URL) != source.URL:
		return errors.New("the source's URL holds user info")
	case !gitref.SameBranch(source.Revision, s.Want.Branch):
		return fmt.Errorf("the source's revision is %q, and the applier follows branch %q", source.Revision, s.Want.Branch)
	}
	return nil
}

func validateAccepts(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	verdict := s.client.Validate(ctx, s.Ref)
	if !verdict.OK || verdict.Reason != applier.ReasonSucceeded || verdict.Err != nil {
		return fmt.Errorf("an applier that may be asked gets %+v", verdict)
	}
	return nil
}

func validateReportsSource(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	return s.rightSource(s.client.Validate(ctx, s.Ref).Source)
}

func validateWritesNothing(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	s.client.Validate(ctx, s.Ref)
	for _, r := range s.wire.requests() {
		if r.writes() {
			return fmt.Errorf("Validate sent a write: %v", r)
		}
	}
	return nil
}

func validateMissing(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	s.Ref = s.missing()
	return s.refuses(s.client.Validate(ctx, s.Ref), applier.ReasonApplierNotFound)
}

func validateNotServed(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	was := s.Ref
	s.Ref = s.missing()
	missing := s.client.Validate(ctx, s.Ref)
	s.wire.on(func(r *request) fault {
		if r.resource.GroupResource() == s.Resource.GroupResource() {
			return fault{refuse: notServed(r)}
		}
		return fault{}
	})
	verdict := s.client.Validate(ctx, s.Ref)
	if err := s.refuses(verdict, applier.ReasonApplierNotFound); err != nil {
		return err
	}
	if verdict.Message == missing.Message {
		return fmt.Errorf("a kind that is not served and an object of %s that does not exist get one message: %q", was.Namespace, verdict.Message)
	}
	return nil
}

func validateForbidden(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	s.wire.on(func(r *request) fault {
		if r.resource.GroupResource() == s.Resource.GroupResource() {
			return fault{refuse: forbidden(r)}
		}
		return fault{}
	})
	return s.refuses(s.client.Validate(ctx, s.Ref), applier.ReasonForbidden)
}

func validateMayNotWrite(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	s.wire.on(func(r *request) fault {
		if !strings.HasSuffix(r.resource.Resource, "accessreviews") {
			return fault{}
		}
		return fault{change: func(review *unstructured.Unstructured) {
			review.Object["status"] = map[string]any{"allowed": false}
		}}
	})
	verdict := s.client.Validate(ctx, s.Ref)
	return errors.Join(s.refuses(verdict, applier.ReasonForbidden), s.rightSource(verdict.Source))
}

func validateCheckFailed(ctx context.Context, e *env) error {
	return e.sweep(ctx, sweep{what: "with a 500", strike: answers(internalError), flow: func(ctx context.Context, s *subject, h *hit) error {
		verdict := s.client.Validate(ctx, s.Ref)
		if h.request() == nil {
			return nil
		}
		if err := s.refuses(verdict, applier.ReasonCheckFailed); err != nil {
			return err
		}
		if _, ok := status(verdict.Err); !ok {
			return fmt.Errorf("Verdict.Err does not hold the API server's error: %w", verdict.Err)
		}
		return nil
	}})
}

func validateSeesNewSource(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	s.client.Validate(ctx, s.Ref)
	if err := s.Retarget(ctx); err != nil {
		return err
	}
	if s.rightSource(s.client.Validate(ctx, s.Ref).Source) == nil {
		return errors.New("somebody pointed the applier to another source, and Validate reports the old one")
	}
	return nil
}
