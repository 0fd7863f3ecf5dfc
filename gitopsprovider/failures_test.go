package gitopsprovider_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// watched is a watch of failures, and what its Reader is made to see.
type watched struct {
	t      *testing.T
	memory *memory
	events <-chan gitopsprovider.FailureEvent
	stop   context.CancelFunc
}

// watching runs a test of a watch in a bubble.
func watching(t *testing.T, options gitopsprovider.FailureOptions, test func(*watched)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &watched{t: t, memory: newMemory(), stop: cancel}
		events, err := views(t, gitopsprovider.NoDiffer{}, w.memory).WatchFailures(ctx, options)
		require.NoError(t, err)
		w.events = events
		test(w)
	})
}

// sees shows an object as it stands.
func (w *watched) sees(o gitopsprovider.Object) {
	o.UID = "uid of " + o.Name
	w.memory.sightings[o.Kind] <- gitopsprovider.Sighting{Answer: gitopsprovider.AnswerFound, Object: o}
	synctest.Wait()
}

// reports takes what the watch has to report.
func (w *watched) reports() []string {
	w.t.Helper()
	out := []string{}
	for {
		synctest.Wait()
		select {
		case event, ok := <-w.events:
			require.True(w.t, ok)
			line := string(event.Type) + " " + event.Workload.String()
			if event.Ready.Reason != "" {
				line += ": " + event.Ready.Reason
			}
			if event.Failure != nil {
				line += ", was " + event.Failure.Reason
			}
			if event.Standing {
				line += ", standing"
			}
			out = append(out, line)
		default:
			return out
		}
	}
}

func TestAFailureIsReportedOnceForEachTransition(t *testing.T) {
	a := func(condition gitopsprovider.Condition) gitopsprovider.Object { return app("ns/a", is(condition)) }
	later := func(c gitopsprovider.Condition) gitopsprovider.Condition {
		c.Since = time.Now().Add(time.Hour)
		return c
	}
	for name, test := range map[string]struct {
		seen []gitopsprovider.Condition
		want []string
	}{
		"an object that begins to fail":      {[]gitopsprovider.Condition{ready, failing("Build", "x")}, []string{"Failed App ns/a: Build"}},
		"one that fails from the start":      {[]gitopsprovider.Condition{failing("Build", "x")}, []string{"Failed App ns/a: Build, standing"}},
		"a resync":                           {[]gitopsprovider.Condition{ready, failing("Build", "x"), failing("Build", "x")}, []string{"Failed App ns/a: Build"}},
		"a retry that fails in the same way": {[]gitopsprovider.Condition{ready, failing("Build", "x"), progressing, later(failing("Build", "x"))}, []string{"Failed App ns/a: Build"}},
		"a message that names another temporary folder": {
			[]gitopsprovider.Condition{ready, failing("Build", "no /tmp/k-1234/x"), progressing, failing("Build", "no /tmp/k-98765/x")},
			[]string{"Failed App ns/a: Build"},
		},
		"a message that names another commit": {
			[]gitopsprovider.Condition{ready, failing("Build", "bad "+commitA), progressing, failing("Build", "bad "+commitB)},
			[]string{"Failed App ns/a: Build"},
		},
		"another reason": {[]gitopsprovider.Condition{ready, failing("Build", "x"), failing("Health", "x")}, []string{"Failed App ns/a: Build", "Failed App ns/a: Health"}},
		"another message": {
			[]gitopsprovider.Condition{ready, failing("Health", "Pod a crashes"), failing("Health", "Pod b crashes")},
			[]string{"Failed App ns/a: Health", "Failed App ns/a: Health"},
		},
		"a failure after it was well again":             {[]gitopsprovider.Condition{failing("Build", "x"), ready, failing("Build", "x")}, []string{"Failed App ns/a: Build, standing", "Failed App ns/a: Build"}},
		"the same failure after a moment of silence":    {[]gitopsprovider.Condition{failing("Build", "x"), {}, failing("Build", "x")}, []string{"Failed App ns/a: Build, standing"}},
		"one that began anew after a moment of silence": {[]gitopsprovider.Condition{failing("Build", "x"), {}, progressing, later(failing("Build", "x"))}, []string{"Failed App ns/a: Build, standing", "Failed App ns/a: Build"}},
		"an object that is well":                        {[]gitopsprovider.Condition{{}, progressing, ready, {State: gitopsprovider.StateSuspended}}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			watching(t, gitopsprovider.FailureOptions{}, func(w *watched) {
				got := []string{}
				for _, condition := range test.seen {
					w.sees(a(condition))
					got = append(got, w.reports()...)
				}
				assert.Equal(t, test.want, got)
			})
		})
	}
}

func TestRecoveriesAreReportedOnRequest(t *testing.T) {
	for recoveries, want := range map[bool][]string{
		true: {
			"Failed App ns/a: Build", "Recovered App ns/a: Done, was Build",
			"Failed App ns/b: Build, standing", "Deleted App ns/b, was Build",
		},
		false: {"Failed App ns/a: Build", "Failed App ns/b: Build, standing"},
	} {
		t.Run(fmt.Sprint(recoveries), func(t *testing.T) {
			watching(t, gitopsprovider.FailureOptions{Recoveries: recoveries}, func(w *watched) {
				got := []string{}
				for _, o := range []gitopsprovider.Object{
					app("ns/a"), app("ns/a", is(failing("Build", "x"))), app("ns/a", is(progressing)), app("ns/a"), app("ns/a"),
					app("ns/b", is(failing("Build", "x"))),
				} {
					w.sees(o)
					got = append(got, w.reports()...)
				}
				for _, name := range []string{"a", "b"} {
					w.memory.sightings["App"] <- gitopsprovider.Sighting{
						Answer: gitopsprovider.AnswerAbsent, Object: gitopsprovider.Object{Workload: workload("App", "ns/"+name), UID: "uid of " + name},
					}
					got = append(got, w.reports()...)
				}
				assert.Equal(t, want, got)
			})
		})
	}
}

func TestAnObjectThatReplacesAnotherOfItsNameFailsAnew(t *testing.T) {
	watching(t, gitopsprovider.FailureOptions{}, func(w *watched) {
		for _, uid := range []string{"one", "two"} {
			o := app("ns/a", is(failing("Build", "x")))
			o.UID = uid
			w.memory.sightings["App"] <- gitopsprovider.Sighting{Answer: gitopsprovider.AnswerFound, Object: o}
			assert.Equal(t, []string{"Failed App ns/a: Build, standing"}, w.reports())
		}
	})
}

func TestAKeyIsTheSameWhoeverReportsTheFailure(t *testing.T) {
	keys := map[string]bool{}
	for run, message := range map[string]string{"one process": "no /tmp/k-1234/x", "another process, after a retry": "no /tmp/k-98765/x"} {
		failure := failing("Build", message)
		failure.Since = at("12:00")
		t.Run(run, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				m := newMemory()
				events, err := views(t, gitopsprovider.NoDiffer{}, m).WatchFailures(ctx, gitopsprovider.FailureOptions{})
				require.NoError(t, err)
				m.sightings["App"] <- gitopsprovider.Sighting{Answer: gitopsprovider.AnswerFound, Object: with(app("ns/a", is(failure)), func(o *gitopsprovider.Object) {
					o.UID = "u1"
					o.Sources = []gitopsprovider.SourceUse{
						{Applied: "main@sha1:" + commitA, Attempted: "v1@sha1:" + commitA}, {Attempted: "main@sha1:" + commitB}, {Attempted: "main@sha1:" + commitC},
					}
				})}
				event := <-events
				keys[event.Key] = true
				assert.Equal(t, "u1/2026-05-04T12:00:00Z/Build/a1ced3421949", event.Key)
				assert.Equal(t, "main@sha1:"+commitB, event.Revision, "not what was applied before, and tried anew")
				assert.Equal(t, gitopsprovider.Engine("Delivery"), event.Engine)
				assert.False(t, event.Observed.IsZero())
				cancel()
			})
		})
	}
	assert.Len(t, keys, 1)
}

// A host that remembers the keys must not take one failure for another.
func TestEachFailureThatIsNewsHasAKeyOfItsOwn(t *testing.T) {
	since := func(clock string, c gitopsprovider.Condition) gitopsprovider.Condition {
		c.Since = at(clock)
		return c
	}
	watching(t, gitopsprovider.FailureOptions{Recoveries: true}, func(w *watched) {
		var keys []string
		for _, condition := range []gitopsprovider.Condition{
			since("12:00", failing("Health", "Pod a crashes")), since("12:00", failing("Health", "Pod b crashes")),
			since("12:00", failing("Build", "Pod b crashes")), ready, since("12:30", failing("Build", "Pod b crashes")),
		} {
			w.sees(app("ns/a", is(condition)))
			event := <-w.events
			keys = append(keys, event.Key)
		}
		assert.Equal(t, keys[2], keys[3], "a recovery has the key of what is over")
		slices.Sort(keys)
		assert.Len(t, slices.Compact(keys), 4)
	})
}

func TestASlowReaderGetsTheNewestOfEachObject(t *testing.T) {
	watching(t, gitopsprovider.FailureOptions{}, func(w *watched) {
		for round := range 3 {
			for i := range 100 {
				w.sees(app(fmt.Sprintf("ns/a%02d", i), is(failing([]string{"First", "Second", "Third"}[round], "x"))))
			}
		}
		got := w.reports()
		require.Len(t, got, 100, "no object is lost")
		for i, line := range got {
			assert.Equal(t, fmt.Sprintf("Failed App ns/a%02d: Third", i), line)
		}
	})
}

// Whatever is read while it changes, the last that is read of each object is how it stands in the end.
func TestTheNewestOfEachObjectArrivesWhileItIsRead(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	m := newMemory()
	events, err := views(t, gitopsprovider.NoDiffer{}, m).WatchFailures(ctx, gitopsprovider.FailureOptions{})
	require.NoError(t, err)
	const objects, rounds = 20, 100
	go func() {
		for round := range rounds {
			for i := range objects {
				o := app(fmt.Sprintf("ns/a%02d", i), is(failing(fmt.Sprintf("Reason%02d", round), "x")))
				o.UID = o.Name
				m.sightings["App"] <- gitopsprovider.Sighting{Answer: gitopsprovider.AnswerFound, Object: o}
			}
		}
	}()
	newest := map[string]string{}
	current := func() (n int) {
		for _, reason := range newest {
			if reason == fmt.Sprintf("Reason%02d", rounds-1) {
				n++
			}
		}
		return n
	}
	for current() < objects {
		event := <-events
		assert.GreaterOrEqual(t, event.Ready.Reason, newest[event.Workload.Name], "never an older one after a newer")
		newest[event.Workload.Name] = event.Ready.Reason
	}
	cancel()
	for range events {
		t.Error("something is left")
	}
}

func TestAFailureThatIsOverStillWaitsForItsReader(t *testing.T) {
	watching(t, gitopsprovider.FailureOptions{}, func(w *watched) {
		w.sees(app("ns/a", is(failing("Build", "x"))))
		w.sees(app("ns/a"))
		assert.Equal(t, []string{"Failed App ns/a: Build, standing"}, w.reports())
	})
}

func TestAKindThatCannotBeWatchedIsSaid(t *testing.T) {
	watching(t, gitopsprovider.FailureOptions{}, func(w *watched) {
		got := []string{}
		for _, sighting := range []gitopsprovider.Sighting{
			{Answer: gitopsprovider.AnswerForbidden, Err: forbidden("apps")},
			{Answer: gitopsprovider.AnswerFound},
			{Answer: gitopsprovider.AnswerUnknown, Err: errSilent},
			{Answer: gitopsprovider.AnswerNotServed, Err: notServed()},
			{Answer: gitopsprovider.AnswerNotServed, Err: notServed()},
			{Answer: gitopsprovider.AnswerFound},
		} {
			w.memory.sightings["App"] <- sighting
			got = append(got, w.reports()...)
		}
		assert.Equal(t, []string{"Unwatched App ", "Watched App ", "Unwatched App ", "Watched App "}, got,
			"a kind that is not served has no objects to hear of")
	})
}

func TestAnUnwatchedKindIsExplained(t *testing.T) {
	watching(t, gitopsprovider.FailureOptions{}, func(w *watched) {
		w.memory.sightings["Repo"] <- gitopsprovider.Sighting{Answer: gitopsprovider.AnswerForbidden, Err: forbidden("repos")}
		event := <-w.events
		assert.Equal(t, gitopsprovider.FailureUnwatched, event.Type)
		assert.Equal(t, gitopsprovider.Workload{Group: group, Kind: "Repo"}, event.Workload)
		assert.Contains(t, event.Message, "this identity may not watch the objects of kind Repo in cluster test: grant it the verbs list and watch")
	})
}

func TestTheChannelIsClosedOnceTheWatchesHaveEnded(t *testing.T) {
	watching(t, gitopsprovider.FailureOptions{}, func(w *watched) {
		w.sees(app("ns/a", is(failing("Build", "x"))))
		w.stop()
		synctest.Wait()
		for event := range w.events {
			t.Errorf("reported %v after the end", event)
		}
	})
}

func TestAWatchDoesNotBeginAfterItsEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSilent)
	_, err := views(t, gitopsprovider.NoDiffer{}, newMemory()).WatchFailures(ctx, gitopsprovider.FailureOptions{})
	require.ErrorIs(t, err, errSilent)
}

func TestAFailureInALine(t *testing.T) {
	t.Parallel()
	broken := failing("Build", "two\n\tlines\x1b[2J of "+strings.Repeat("text ", 50)+"end")
	for want, event := range map[string]gitopsprovider.FailureEvent{
		"Failed App ns/a at main@sha1:bbbbbbbbbbbb: Build: two lines [2J of text ": {
			Type: gitopsprovider.FailureBegan, Workload: workload("App", "ns/a"), Ready: broken, Revision: "main@sha1:" + commitB,
		},
		"Failed (standing) App ns/a: Build: two lines ": {Type: gitopsprovider.FailureBegan, Workload: workload("App", "ns/a"), Ready: broken, Standing: true},
		"Recovered App ns/a, which failed: Build: two ": {Type: gitopsprovider.FailureRecovered, Workload: workload("App", "ns/a"), Ready: ready, Failure: &broken},
		"Deleted App ns/a, which failed: Build: two ":   {Type: gitopsprovider.FailureDeleted, Workload: workload("App", "ns/a"), Failure: &broken},
		"Unwatched App: may not":                        {Type: gitopsprovider.FailureUnwatched, Workload: gitopsprovider.Workload{Group: group, Kind: "App"}, Message: "may\nnot"},
		"Watched App":                                   {Type: gitopsprovider.FailureWatched, Workload: gitopsprovider.Workload{Group: group, Kind: "App"}},
	} {
		line := event.String()
		assert.True(t, strings.HasPrefix(line, want), line)
		assert.NotContains(t, line, "\n")
		if strings.Contains(want, "Build") {
			assert.True(t, strings.HasSuffix(line, "end"), "whole: %s", line)
		} else {
			assert.Equal(t, want, line)
		}
	}
	assert.Equal(t, "Failing: Build: two lines", failing("Build", "two\nlines").String())
	assert.Equal(t, "Ready", gitopsprovider.Condition{State: gitopsprovider.StateReady, Reason: "Done", Message: "m"}.String())
	assert.Equal(t, "Unknown", gitopsprovider.Condition{}.String())
}
