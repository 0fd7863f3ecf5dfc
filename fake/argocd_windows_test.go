package fake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
)

// What a sync window with manualSync lets through on application-controller 3.2.11.
func TestAWindowForManualSyncsJudgesByTheRecordThatStoodBeforeThePass(t *testing.T) {
	automated := fields{"initiatedBy": fields{"automated": true}}
	for name, test := range map[string]struct {
		// previous is how the previous operation was started, asked how this one is; cleared says whether it removes the record.
		previous, asked fields
		cleared         bool
		// first is the message of the first pass, and synced whether the operation ends within the window.
		first  string
		synced bool
	}{
		"an automated one, cleared":                       {asked: automated, cleared: true, first: "Sync operation blocked by sync window"},
		"a manual one, cleared":                           {cleared: true, first: "Sync operation blocked by sync window", synced: true},
		"an automated one, uncleared, after a manual":     {asked: automated, first: "successfully synced (all tasks run)", synced: true},
		"a manual one, uncleared, after an automated":     {previous: automated, first: "Sync operation blocked by sync window"},
		"an automated one, uncleared, after an automated": {previous: automated, asked: automated, first: "Sync operation blocked by sync window"},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				w.operate(operation("previous", fields{"revision": w.repo.Head("main")}, test.previous))
				two := w.push("two", value("two"))
				w.argo.BlockAutomated()
				var messages []string
				seen := w.watch(func(state fields) {
					if message, _ := state["message"].(string); message != "" && tokenIn(state["operation"].(fields)) == "tok" {
						messages = append(messages, message)
					}
				})
				set := w.operateUncleared
				if test.cleared {
					set = w.operate
				}
				set(operation("tok", fields{"revision": two}, test.asked))
				w.after(time.Hour)
				seen()
				assert.Equal(w, test.synced, w.data("cm") == "two", "%v", messages)
				assert.Contains(w, messages, test.first)

				w.argo.Unblock()
				synctest.Wait()
				assert.Contains(w, w.app(), "- Succeeded tok sr=two")
			})
		})
	}
}

func TestAWindowKeepsAnApplicationFromSyncingOnItsOwn(t *testing.T) {
	for name, block := range map[string]func(*argoWorld){
		"for everybody":       func(w *argoWorld) { w.argo.Block() },
		"for automated syncs": func(w *argoWorld) { w.argo.BlockAutomated() },
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				block(w)
				w.push("one", value("one"))
				w.application(set(true, "spec", "syncPolicy", "automated", "enabled"))
				w.after(time.Hour)
				assert.Empty(w, w.data("cm"))
				w.argo.Unblock()
				synctest.Wait()
				assert.Equal(w, "one", w.data("cm"))
			})
		})
	}
}

func TestTheClientsSyncCountsAsAutomatedInAWindowUnlessTheHostSaysManual(t *testing.T) {
	for name, test := range map[string]struct {
		block  func(*argoWorld)
		manual bool
		waits  bool
	}{
		"automated, in a window for manual syncs": {block: func(w *argoWorld) { w.argo.BlockAutomated() }, waits: true},
		"manual, in a window for manual syncs":    {block: func(w *argoWorld) { w.argo.BlockAutomated() }, manual: true},
		"automated, in a window for none":         {block: func(w *argoWorld) { w.argo.Block() }, waits: true},
		"manual, in a window for none":            {block: func(w *argoWorld) { w.argo.Block() }, manual: true, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				test.block(w)
				client, err := argocd.New("prod", w.cluster, argocd.Options{Initiator: "acme", Manual: test.manual})
				require.NoError(w, err)
				go func() {
					time.Sleep(time.Hour)
					w.argo.Unblock()
				}()
				start, reports := time.Now(), []string{}

				end, err := applier.Apply(w.Context(), client, argoApp, w.ask(w.push("two", value("two"))), func(p applier.Progress) {
					reports = append(reports, string(p.State)+" "+p.Message)
				})

				require.NoError(w, err)
				assert.Equal(w, "two", w.called[end.AppliedCommit])
				assert.Equal(w, "two", w.data("cm"))
				assert.Equal(w, test.waits, time.Since(start) >= time.Hour)
				if test.waits {
					assert.Contains(w, reports, "Running Application team-a/app in cluster prod is Running: Sync operation blocked by sync window")
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}
