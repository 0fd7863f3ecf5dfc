package appliertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

var quietClauses = []clause{
	{
		group: "Quiet", name: "makes no request while nothing changes",
		text:  "no request to an API server while nothing changes: an operation that is watched is not polled",
		needs: []Capability{Watcher, API, PushStuck},
		check: quietWhileNothingChanges,
	},
	{
		group: "Quiet", name: "makes no request once nobody asks",
		text:  "once its calls have returned and its watches ended, a Client makes no request",
		needs: []Capability{API},
		check: quietAfterTheEnd,
	},
	{
		group: "Quiet", name: "leaves no goroutine",
		text:  "a Client starts no goroutine that outlives a call, nor a watch its context",
		check: leavesNoGoroutine,
	},
}

func quietWhileNothingChanges(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	commit, release, err := s.stuck(ctx)
	if err != nil {
		return err
	}
	started, err := s.request(ctx, commit)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, err := applier.Follower{PollInterval: pollInterval}.Follow(following, s.client, s.Ref, &started, nil)
		done <- err
	}()
	// What the applier does at the beginning of an apply is over by then.
	pause(ctx, e.harness.Quiet/2)
	s.wire.forget()
	pause(ctx, e.harness.Quiet)
	made := s.wire.requests()
	err = release()
	if err == nil {
		select {
		case err = <-done:
		case <-time.After(e.harness.Timeout):
			err = errors.New("the apply went on, and the operation did not end")
		}
	}
	if len(made) > 0 {
		err = errors.Join(err, fmt.Errorf("nothing changed for %v, and %d requests were made, first %v", e.harness.Quiet, len(made), made[0]))
	}
	return err
}

func quietAfterTheEnd(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	if err := s.succeed(ctx, commit); err != nil {
		return err
	}
	s.wire.forget()
	pause(ctx, e.harness.Quiet)
	if made := s.wire.requests(); len(made) > 0 {
		return fmt.Errorf("the operation had ended, and %d requests were made, first %v", len(made), made[0])
	}
	return nil
}

func leavesNoGoroutine(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	// Goroutines carry the labels of those that start them.
	label := "appliertest-" + applier.NewToken()
	pprof.Do(ctx, pprof.Labels(label, "call"), func(ctx context.Context) {
		s.client.Validate(ctx, s.Ref)
		err = s.succeed(ctx, commit)
	})
	if err != nil {
		return err
	}
	var left string
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); pause(ctx, pollInterval) {
		if left, err = labelled(label); err != nil || left == "" {
			return err
		}
	}
	return fmt.Errorf("%v after every call had returned, this runs:\n%s", soon, left)
}

// labelled returns the stack of a goroutine with a label, connections that are kept open aside.
func labelled(label string) (string, error) {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return "", err
	}
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, label) && !strings.Contains(stack, "net/http") && !strings.Contains(stack, "golang.org/x/net/http2") {
			return stack, nil
		}
	}
	return "", nil
}
