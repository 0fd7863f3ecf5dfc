package fake_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/fake"
)

// What a sync of application-controller 3.2.11 applies, and how it ends.

func TestARevisionIsResolvedAndTheResultSaysToWhat(t *testing.T) {
	for name, test := range map[string]struct {
		revision func(two string) string
		synced   string
	}{
		"an older commit":         {func(string) string { return "one" }, "one"},
		"the tip":                 {func(string) string { return "tip" }, "tip"},
		"a commit of no branch":   {func(two string) string { return two }, "two"},
		"in upper case":           {strings.ToUpper, "two"},
		"a short hash":            {func(two string) string { return two[:7] }, "two"},
		"none":                    {func(string) string { return "" }, "tip"},
		"a branch":                {func(string) string { return "main" }, "tip"},
		"a full branch":           {func(string) string { return "refs/heads/main" }, "tip"},
		"HEAD":                    {func(string) string { return "HEAD" }, "tip"},
		"a tag":                   {func(string) string { return "v1" }, "one"},
		"a hash of no commit":     {func(string) string { return strings.Repeat("a", 40) }, ""},
		"a short one of none":     {func(string) string { return "abcdef1" }, ""},
		"a branch of that nobody": {func(string) string { return "nobody" }, ""},
		"a hash and a space":      {func(two string) string { return two + " " }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				one := w.repo.Head("main")
				w.repo.Tag("v1", one)
				two := w.repo.CommitTo("other", value("two"))
				w.called[two] = "two"
				w.repo.DeleteBranch("other")
				tip := w.push("tip", value("tip"))
				revision := test.revision(two)
				switch revision {
				case "one":
					revision = one
				case "tip":
					revision = tip
				}
				w.operate(operation("tok", fields{"revision": revision}))
				if test.synced == "" {
					assert.Contains(w, w.app(), "- Error tok sr="+revision+" hist=1 (ComparisonError: Failed to load target state: ")
					assert.Equal(w, "one", w.data("cm"))
					return
				}
				assert.Equal(w, "- Succeeded tok sr="+test.synced+" hist=2 (successfully synced (all tasks run))", w.app())
				assert.Equal(w, test.synced, w.data("cm"))
			})
		})
	}
}

func TestACommitThatIsNotThereIsAnErrorWithGitsWords(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.operate(operation("tok", fields{"revision": strings.Repeat("a", 40)}))
		assert.Contains(w, w.app(), "Failed to checkout revision aaaa")
		assert.Contains(w, w.app(), "failed exit status 128: fatal: remote error: upload-pack: not our ref aaaa")
	})
}

func TestASyncThatRanIsFailedAndOneThatCouldNotIsAnError(t *testing.T) {
	good := configMap("good", "two")
	for name, test := range map[string]struct {
		files   fake.Files
		end     string
		applied bool
	}{
		"an unknown kind": {
			files: fake.Files{"bad.yaml": "apiVersion: example.com/v1\nkind: Nope\nmetadata: {name: nope}\n"},
			end:   "Failed tok sr=two hist=1 (one or more synchronization tasks are not valid)",
		},
		"a bad name": {
			files: fake.Files{"bad.yaml": configMap("Bad_Name", "x")},
			end:   "Failed tok sr=two hist=1 (one or more objects failed to apply, reason: ", applied: true,
		},
		"a missing namespace": {
			files: fake.Files{"bad.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad, namespace: absent}\n"},
			end:   `Failed tok sr=two hist=1 (one or more objects failed to apply, reason: namespaces "absent" not found`, applied: true,
		},
		"bad YAML": {
			files: fake.Files{"bad.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: [\n"},
			end:   "Error tok sr=two hist=1 (ComparisonError: Failed to load target state: failed to generate manifest for source 1 of 1: ",
		},
		"no YAML at all": {
			files: fake.Files{"bad.yaml": "a: ["},
			end:   "Succeeded tok sr=two hist=2 (successfully synced (all tasks run))", applied: true,
		},
		"a kustomization.yaml": {
			files: fake.Files{"kustomization.yaml": "resources: [good.yaml]"},
			end:   "Error tok sr=two hist=1 (ComparisonError: Failed to load target state: failed to generate manifest for source 1 of 1: the simulated application-controller syncs plain manifests, and not what kustomization.yaml makes)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				test.files["good.yaml"] = good
				two := w.push("two", test.files)
				w.operate(operation("tok", fields{"revision": two}))
				assert.Contains(w, w.app(), "- "+test.end)
				assert.Equal(w, test.applied, w.data("good") == "two")
			})
		})
	}
}

func TestAFailedStepEndsTheOperation(t *testing.T) {
	for step, end := range map[fake.Step]string{
		fake.ProjectStep: "- Error tok hist=1 (InvalidSpecError: no)",
		fake.LoadStep:    "- Error tok sr=two hist=1 (ComparisonError: Failed to load target state: no)",
		fake.ApplyStep:   "- Failed tok sr=two hist=1 (one or more objects failed to apply, reason: no)",
	} {
		t.Run(string(step), func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				w.argo.FailNext(step, "no")
				two := w.push("two", value("two"))
				w.operate(operation("tok", fields{"revision": two}))
				assert.Equal(w, end, w.app())
				w.operate(operation("again", fields{"revision": two}))
				assert.Contains(w, w.app(), "- Succeeded again sr=two")
			})
		})
	}
}

func TestWhatTheSourceNoLongerHasIsPrunedWhereTheOperationSaysSo(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced(set(true, "spec", "syncPolicy", "automated", "prune"), set(false, "spec", "syncPolicy", "automated", "enabled"))
		w.operate(operation("more", fields{"revision": w.push("more", fake.Files{"other.yaml": configMap("other", "x")})}))
		w.repo.Remove("other.yaml")
		w.operate(operation("tok", fields{}))
		assert.Contains(w, w.app(), "- Succeeded tok")
		assert.Equal(w, "x", w.data("other"), "the spec's prune is not the operation's")
		results := w.field("status", "operationState", "syncResult", "resources").([]any)
		assert.Contains(w, results, fields{
			"group": "", "version": "v1", "kind": "ConfigMap", "namespace": team, "name": "other",
			"status": "PruneSkipped", "message": "ignored (requires pruning)", "hookPhase": "Succeeded", "syncPhase": "Sync",
		})
		assert.Equal(w, "OutOfSync", w.field("status", "sync", "status"))

		w.operate(operation("prune", fields{"prune": true}))
		assert.Contains(w, w.app(), "- Succeeded prune")
		assert.Empty(w, w.data("other"))
	})
}

func TestPruningACommitWithoutManifestsDeletesEverything(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.repo.Commit(fake.Files{"readme.md": "nothing"})
		w.repo.Remove("cm.yaml")
		w.operate(operation("tok", fields{"prune": true}))
		assert.Contains(w, w.app(), "- Succeeded tok")
		assert.Empty(w, w.data("cm"))
	})
}

func TestWhatIsAppliedNamesItsApplication(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		cm, err := w.cluster.Resource(configMaps).Namespace(team).Get(w.Context(), "cm", metav1.GetOptions{})
		assert.NoError(w, err)
		assert.Equal(w, "team-a_app:/ConfigMap:team-a/cm", cm.GetAnnotations()["argocd.argoproj.io/tracking-id"])
	})
}

func TestASelectiveSyncAndADryRunLeaveNoHistory(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		two := w.push("two", fake.Files{"cm.yaml": configMap("cm", "two"), "other.yaml": configMap("other", "two")})
		w.operate(operation("dry", fields{"revision": two, "dryRun": true}))
		assert.Equal(w, "- Succeeded dry sr=two hist=1 (successfully synced (all tasks run))", w.app())
		assert.Equal(w, "one", w.data("cm"))
		w.operate(operation("selective", fields{"revision": two, "resources": []any{fields{"kind": "ConfigMap", "name": "cm"}}}))
		assert.Equal(w, "- Succeeded selective sr=two hist=1 (successfully synced (all tasks run))", w.app())
		assert.Equal(w, "two", w.data("cm"))
		assert.Empty(w, w.data("other"))
	})
}

func TestWavesAreAppliedOneAPass(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		seen := w.timeline()
		w.operate(operation("tok", fields{"revision": w.push("two", waves("two"))}))
		assert.Equal(w, []string{
			"op=tok hist=1",
			"op=tok Running tok hist=1",
			"op=tok Running tok sr=two hist=1 (one or more tasks are running)",
			"op=tok Running tok sr=two hist=2 (one or more tasks are running)",
			"- Succeeded tok sr=two hist=2 (successfully synced (all tasks run))",
		}, seen())
	})
}

func TestAHookThatFailsEndsTheSync(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.operate(operation("tok", fields{"revision": w.push("two", fake.Files{"cm.yaml": configMap("cm", "two"), "hook.yaml": hook})}))
		assert.NoError(w, w.cluster.Resource(jobs).Namespace(team).Delete(w.Context(), "hook", metav1.DeleteOptions{}))
		synctest.Wait()
		assert.Equal(w, "- Failed tok sr=two hist=1 (one or more synchronization tasks completed unsuccessfully)", w.app())
		assert.Equal(w, "one", w.data("cm"))
	})
}

func TestSourceAndRevisionOfARunningOperationAreFrozenAndTheDestinationIsNot(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		two := w.push("two", fake.Files{"cm.yaml": configMap("cm", "two"), "hook.yaml": hook})
		w.operate(operation("tok", fields{"revision": two}))
		w.update(func(app fields) {
			_ = unstructured.SetNestedField(app, "https://git.example.com/acme/elsewhere", "spec", "source", "repoURL")
		})
		assert.Equal(w, "Unknown", w.field("status", "sync", "status"), "it is compared with the new source")
		w.endHook()
		assert.Contains(w, w.app(), "- Succeeded tok sr=two hist=2")
		assert.Equal(w, "two", w.data("cm"))
	})
}

func TestARetryTakesTheSourceOfThatTime(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.push("two", fake.Files{"sub/cm.yaml": configMap("cm", "sub")})
		w.argo.FailNext(fake.ApplyStep, "no")
		w.operate(operation("tok", fields{"revision": w.repo.Head("main")}, fields{"retry": fields{"limit": int64(1)}}))
		w.update(func(app fields) { _ = unstructured.SetNestedField(app, "sub", "spec", "source", "path") })
		w.after(time.Minute)
		assert.Contains(w, w.app(), "- Succeeded tok sr=two")
		assert.Equal(w, "sub", w.data("cm"))
	})
}

func TestOnlyTheClusterItselfIsADestination(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.application(set("https://elsewhere.example.com", "spec", "destination", "server"))
		w.operate(operation("tok", fields{}))
		assert.Contains(w, w.app(), `- Error tok hist=0 (error getting cluster by server "https://elsewhere.example.com"`)
	})
}

func TestSeveralSourcesAreRefused(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.push("one", value("one"))
		w.application(set([]any{fields{"repoURL": repositoryURL, "path": "."}}, "spec", "sources"))
		w.operate(operation("tok", fields{}))
		assert.Contains(w, w.app(), "- Error tok sr= hist=0 (ComparisonError: Failed to load target state: the simulated application-controller supports neither")
	})
}
