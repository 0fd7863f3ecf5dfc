package applier

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"
)

// Tokens returns a new token at each call. A token identifies one request or one suspend in the applier's own object
// and status. It is used once, is opaque to everybody, and is compared for equality alone.
//
// It is called from several goroutines. A test may supply its own, as long as no value repeats.
type Tokens func() string

// NewToken returns a token of the process's own source: the present time in RFC 3339 with nanoseconds and a random
// suffix, such as 2026-01-02T15:04:05.000000006Z-1f2e3d4c5b6a7988. The times of a process strictly increase, whatever
// its clock does. It is a [Tokens].
func NewToken() string { return processTokens() }

var processTokens = NewTokens(time.Now)

// NewTokens returns a source of tokens like those of [NewToken], over the clock now.
func NewTokens(now func() time.Time) Tokens {
	var (
		mu   sync.Mutex
		last time.Time
	)
	next := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		at := now().UTC().Round(0)
		if !at.After(last) {
			at = last.Add(time.Nanosecond)
		}
		last = at
		return at
	}
	return func() string {
		var suffix [8]byte
		rand.Read(suffix[:])
		return next().Format("2006-01-02T15:04:05.000000000Z07:00") + "-" + hex.EncodeToString(suffix[:])
	}
}
