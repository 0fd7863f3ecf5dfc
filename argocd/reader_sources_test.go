package argocd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

func TestAnApplicationWithSeveralSources(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	git := "{repoURL: 'https://git.example.com/acme/shop', path: ./apps/shop/, targetRevision: v1}"
	chart := "{repoURL: 'https://charts.example.com', chart: web, targetRevision: 1.x}"
	values := "{repoURL: 'https://git.example.com/acme/values', ref: values}"
	oci := "{repoURL: 'oci://registry.example.com/shop', path: ., targetRevision: latest}"
	both := "{repoURL: 'https://git.example.com/acme/both', path: ., ref: both}"
	sources := "sources: [" + strings.Join([]string{git, chart, values, oci, both}, ", ") + "]"
	entry := func(id int, at, first string) string {
		return fmt.Sprintf("{id: %d, deployedAt: '%s', %s, revisions: [%s, 1.2.3, %s, 'sha256:1', %s]}", id, at, sources, first, commitA, commitA)
	}
	write(t, c, app("shop", sources, "history: ["+entry(1, "2026-05-04T10:00:00Z", commitA)+", "+entry(2, "2026-05-04T11:00:00Z", commitB)+"]"))

	list, err := viewsOf(t, c).Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Namespace: "shop"})
	require.NoError(t, err)
	var got []string
	for _, change := range list.Changes {
		assert.Equal(t, change.Source.Lends, len(change.Notes) == 1)
		lends := map[bool]string{true: " lends files"}[change.Source.Lends]
		got = append(got, fmt.Sprintf("%s %s %q %.12s from %.12s at %s%s", change.Source.Type, change.Source.URL, change.Path, change.ToRev, change.FromRev, change.DeployedAt.Format("15:04"), lends))
	}
	assert.ElementsMatch(t, []string{
		`Git https://git.example.com/acme/shop "apps/shop" bbbbbbbbbbbb from aaaaaaaaaaaa at 11:00`,
		`Helm https://charts.example.com "web" 1.2.3 from  at 10:00`,
		`Git https://git.example.com/acme/values "" aaaaaaaaaaaa from  at 10:00 lends files`,
		`OCI oci://registry.example.com/shop "" sha256:1 from  at 10:00`,
		`Git https://git.example.com/acme/both "" aaaaaaaaaaaa from  at 10:00`,
	}, got)
}

func TestWhatWasAttemptedOfSeveralSources(t *testing.T) {
	t.Parallel()
	sources := "sources: [{repoURL: 'https://git.example.com/acme/shop', path: a}, {repoURL: 'https://git.example.com/acme/other', path: b}]"
	applied := "history: [{id: 1, deployedAt: '2026-05-04T10:00:00Z', " + sources + ", revisions: [" + commitA + ", " + commitA + "]}], "
	failed := func(sync, result string) string {
		return applied + "operationState: {phase: Failed, message: m, startedAt: '2026-05-04T12:00:00Z', operation: {sync: {" + sync + "}}" + result + "}"
	}
	note := []string{commitB + " was attempted since, and failed; it may be applied in part"}
	for name, test := range map[string]struct {
		status   string
		revision string
		notes    [][]string
	}{
		"the second one moved":     {failed("", ", syncResult: {revision: '', revisions: ["+commitA+", "+commitB+"]}"), commitB, [][]string{nil, note}},
		"asked for, not resolved":  {failed("revisions: ["+commitB+", "+commitA+"]", ""), commitB, [][]string{note, nil}},
		"asked for no revisions":   {failed("", ""), "", [][]string{nil, nil}},
		"a single source of them":  {failed("", ", syncResult: {revision: "+commitB+"}"), "", [][]string{nil, nil}},
		"as many as there are not": {failed("", ", syncResult: {revision: '', revisions: ["+commitB+", "+commitB+", "+commitB+"]}"), "", [][]string{nil, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := viewed(t)
			write(t, c, app("shop", sources, test.status))
			v := viewsOf(t, c)
			list, err := v.Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
			require.NoError(t, err)
			var notes [][]string
			for _, change := range list.Changes {
				notes = append(notes, change.Notes)
			}
			assert.Equal(t, test.notes, notes)
			events, err := v.WatchFailures(t.Context(), gitopsprovider.FailureOptions{})
			require.NoError(t, err)
			assert.Equal(t, test.revision, (<-events).Revision)
		})
	}
}

func TestAnApplicationThatMovedToSeveralSourcesHasNotAppliedThem(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	source := "{repoURL: 'https://git.example.com/acme/shop', path: a}"
	write(t, c, app("shop", "sources: ["+source+", "+source+"]", history("2026-05-04T10:00:00Z="+commitA)))
	for _, use := range read(t, c, application("shop")).Sources {
		assert.Empty(t, use.Applied)
	}
}
