package argocd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// An old failure is reported once, whatever the Application is compared with, and however often the watch is opened.
func TestAnOldFailureIsReportedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := viewed(t)
		for i := range 3 {
			write(t, c, app(fmt.Sprintf("app-%d", i), "", operationState("Failed", ", syncResult: {revision: "+commitB+"}")+", sync: {status: OutOfSync, revision: "+commitA+"}"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var keys []string
		take := func() (out []string) {
			events, err := viewsOf(t, c).WatchFailures(ctx, gitopsprovider.FailureOptions{})
			require.NoError(t, err)
			for range 3 {
				time.Sleep(10 * time.Minute)
				c.EndWatches(schema.GroupResource{})
				for i := range 3 {
					patch(t, c, fmt.Sprintf("app-%d", i), fmt.Sprintf(`{"status":{"sync":{"revision":%q}}}`, strings.Repeat("c", 39)+fmt.Sprint(time.Now().Unix()%10)))
				}
				synctest.Wait()
			}
			for {
				select {
				case event := <-events:
					out = append(out, event.Workload.Name+" "+event.Ready.Reason)
					keys = append(keys, event.Key)
				default:
					return out
				}
				synctest.Wait()
			}
		}
		want := []string{"app-0 Failed", "app-1 Failed", "app-2 Failed"}
		assert.ElementsMatch(t, want, take())
		assert.ElementsMatch(t, want, take(), "a second program sees them for the first time,")
		assert.ElementsMatch(t, keys[:3], keys[3:], "under the same keys")
	})
}

// The record of a failed operation is removed when the next one is asked for. What shows through then is no news.
func TestASyncThatFailsAgainIsReportedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := viewed(t)
		failed := `{"phase":"Failed","message":"invalid","startedAt":"%s","operation":{"sync":{}}}`
		write(t, c, app("shop", "", history("2026-05-04T09:00:00Z="+commitA)+", sync: {status: OutOfSync}, health: {status: Missing}, reconciledAt: '2026-05-04T12:00:00Z'"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := viewsOf(t, c).WatchFailures(ctx, gitopsprovider.FailureOptions{Recoveries: true})
		require.NoError(t, err)
		var got []string
		for _, data := range []string{
			`{"operation":null,"status":{"operationState":` + fmt.Sprintf(failed, "2026-05-04T12:00:00Z") + `}}`,
			`{"operation":{"sync":{}},"status":{"operationState":null}}`,
			`{"status":{"operationState":{"phase":"Running","startedAt":"2026-05-04T13:00:00Z","operation":{"sync":{}}}}}`,
			`{"operation":null,"status":{"operationState":` + fmt.Sprintf(failed, "2026-05-04T13:00:00Z") + `}}`,
			`{"operation":{"sync":{}},"status":{"operationState":null}}`,
			`{"operation":null,"status":{"operationState":{"phase":"Succeeded","startedAt":"2026-05-04T13:00:00Z","operation":{"sync":{}}},"health":{"status":"Healthy"}}}`,
		} {
			synctest.Wait()
			patch(t, c, "shop", data)
			synctest.Wait()
			select {
			case event := <-events:
				got = append(got, string(event.Type)+": "+event.Ready.Reason)
			default:
			}
		}
		assert.Equal(t, []string{"Failed: Failed", "Recovered: Healthy"}, got)
	})
}

// The record of a dry run takes the place of that of the sync that failed.
func TestADryRunIsNoRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := viewed(t)
		write(t, c, app("shop", "", history("2026-05-04T09:00:00Z="+commitA)+", sync: {status: OutOfSync}, health: {status: Healthy}, reconciledAt: '2026-05-04T13:00:00Z'"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := viewsOf(t, c).WatchFailures(ctx, gitopsprovider.FailureOptions{Recoveries: true})
		require.NoError(t, err)
		for _, step := range []struct{ data, want string }{
			{`{"status":{"operationState":{"phase":"Failed","startedAt":"2026-05-04T12:00:00Z","operation":{"sync":{}}}}}`, "Failed: Failed"},
			{`{"status":{"operationState":{"phase":"Succeeded","startedAt":"2026-05-04T12:10:00Z","finishedAt":"2026-05-04T12:10:05Z","operation":{"sync":{"dryRun":true}}}}}`, ""},
			{`{"status":{"sync":{"status":"Synced"}}}`, "Recovered: Healthy"},
		} {
			synctest.Wait()
			patch(t, c, "shop", step.data)
			synctest.Wait()
			got := ""
			select {
			case event := <-events:
				got = string(event.Type) + ": " + event.Ready.Reason
			default:
			}
			assert.Equal(t, step.want, got, step.data)
		}
	})
}

func TestAnApplicationSetFailsAndRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := viewed(t)
		write(t, c, set("all", "", ""))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := viewsOf(t, c).WatchFailures(ctx, gitopsprovider.FailureOptions{Recoveries: true})
		require.NoError(t, err)
		condition := func(kind, status string) string {
			return fmt.Sprintf(`{"type":%q,"status":%q,"reason":%q,"message":"m","lastTransitionTime":%q}`, kind, status, kind+status, time.Now().UTC().Format(time.RFC3339))
		}
		for _, step := range []struct{ conditions, want string }{
			{condition("ResourcesUpToDate", "True"), ""},
			{condition("ErrorOccurred", "True") + "," + condition("ResourcesUpToDate", "False"), "Failed ApplicationSet argocd/all: ErrorOccurredTrue"},
			{condition("ErrorOccurred", "True") + "," + condition("ResourcesUpToDate", "True"), ""},
			{condition("ErrorOccurred", "False") + "," + condition("ResourcesUpToDate", "True"), "Recovered ApplicationSet argocd/all: ResourcesUpToDateTrue"},
		} {
			synctest.Wait()
			_, err := c.Resource(applicationSets).Namespace("argocd").Patch(t.Context(), "all", types.MergePatchType,
				[]byte(`{"status":{"conditions":[`+step.conditions+`]}}`), metav1.PatchOptions{}, "status")
			require.NoError(t, err)
			synctest.Wait()
			got := ""
			select {
			case event := <-events:
				got = fmt.Sprintf("%s %s: %s", event.Type, event.Workload, event.Ready.Reason)
			default:
			}
			assert.Equal(t, step.want, got, step.conditions)
		}
	})
}

func patch(t *testing.T, c *fake.Cluster, name, data string) {
	t.Helper()
	_, err := c.Resource(applications).Namespace("argocd").Patch(t.Context(), name, types.MergePatchType, []byte(data), metav1.PatchOptions{})
	require.NoError(t, err)
}
