package gitdiff

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

var _ gitopsprovider.Differ = (*Differ)(nil)

// Differ is a gitopsprovider.Differ over Git repositories that it fetches from.
// [New] makes one. It is safe for concurrent use, and needs no closing.
type Differ struct {
	options      Options
	limits       Limits
	cache        *cache
	roundTripper http.RoundTripper
}

// New returns a Differ. It only checks its options: the cache is made when it is
// first needed.
func New(options Options) (*Differ, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	options.Limits = options.Limits.withDefaults()
	d := &Differ{options: options, limits: options.Limits, cache: newCache(options), roundTripper: options.RoundTripper}
	if d.roundTripper == nil {
		d.roundTripper = ownTransport()
	}
	return d, nil
}

// ownTransport has connections of its own, so that nothing the process does to
// http.DefaultTransport later changes it.
func ownTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.IdleConnTimeout = 30 * time.Second
	return t
}

// Diff implements [gitopsprovider.Differ].
func (d *Differ) Diff(ctx context.Context, q gitopsprovider.DiffQuery) (gitopsprovider.Diff, error) {
	var diff gitopsprovider.Diff
	err := d.call(ctx, q.Repository, q.Branch, func(ctx context.Context, r *repository) error {
		var err error
		diff, err = r.diff(ctx, q)
		return err
	})
	if err != nil {
		return gitopsprovider.Diff{}, err
	}
	return diff, nil
}

// History implements [gitopsprovider.Differ].
func (d *Differ) History(ctx context.Context, q gitopsprovider.HistoryQuery) (gitopsprovider.History, error) {
	var history gitopsprovider.History
	err := d.call(ctx, q.Repository, q.Branch, func(ctx context.Context, r *repository) error {
		var err error
		history, err = r.history(ctx, q)
		return err
	})
	if err != nil {
		return gitopsprovider.History{}, err
	}
	return history, nil
}

// call runs one call on a repository, within its time, and again on a new copy
// if the one in the cache is broken.
func (d *Differ) call(ctx context.Context, address, branch string, f func(context.Context, *repository) error) error {
	tooSlow := fmt.Errorf("no answer within %v: %w", d.limits.Time, gitopsprovider.ErrLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, d.limits.Time, tooSlow)
	defer cancel()
	l, err := parseLocation(address, d.options.AllowLocal)
	if err != nil {
		return failed(address, err, nil)
	}
	c := &call{differ: d, location: l, branch: parseBranch(branch), budget: newBudget(d.limits.FetchBytes)}
	err = c.run(ctx, f)
	if errors.Is(err, errBroken) && l.scheme != "file" {
		if err = d.cache.discard(ctx, l.key()); err == nil {
			err = c.run(ctx, f)
		}
	}
	if err != nil {
		return failed(address, ofContext(ctx, err), c.secrets)
	}
	return nil
}

// call is one call while it runs.
type call struct {
	differ   *Differ
	location *location
	branch   string
	budget   *budget
	secrets  []string
}

func (c *call) run(ctx context.Context, f func(context.Context, *repository) error) error {
	if c.location.scheme == "file" {
		s, err := openLocal(c.location.path)
		if err != nil {
			return err
		}
		defer s.close()
		return f(ctx, &repository{call: c, store: s})
	}
	entry, err := c.differ.cache.use(ctx, c.location.key())
	if err != nil {
		return err
	}
	defer func() {
		entry.close()
		if entry.grew {
			c.differ.cache.tidy()
		}
	}()
	s := openStore(entry.dir)
	defer s.close()
	if err := s.reload(); err != nil {
		return err
	}
	r := &repository{call: c, store: s, entry: entry}
	defer r.disconnect()
	return f(ctx, r)
}
