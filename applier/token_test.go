package applier_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/applier"
)

func TestATokenIsATimeAndARandomSuffix(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("somewhere", 3600)
	tokens := applier.NewTokens(func() time.Time { return time.Date(2026, 1, 2, 16, 4, 5, 6, zone) })

	token := tokens()

	assert.Regexp(t, `^2026-01-02T15:04:05\.000000006Z-[0-9a-f]{16}$`, token)
	assert.Regexp(t, `^2026-01-02T15:04:05\.000000007Z-[0-9a-f]{16}$`, tokens(), "a clock that stands still")
	assert.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z-[0-9a-f]{16}$`, applier.NewToken())
	assert.NotEqual(t, token, applier.NewTokens(func() time.Time { return time.Date(2026, 1, 2, 16, 4, 5, 6, zone) })(), "two processes of one time")
}

func TestTheTimesOfAProcessIncreaseWhateverItsClockDoes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	clock := []time.Time{at, at, at.Add(-time.Hour), at.Add(time.Nanosecond), at.Add(time.Hour), at.Add(time.Minute)}
	tokens := applier.NewTokens(func() time.Time {
		now := clock[0]
		clock = clock[1:]
		return now
	})
	last := time.Time{}
	for range len(clock) {
		now, err := time.Parse(time.RFC3339Nano, tokens()[:len("2026-01-02T15:04:05.000000000Z")])
		assert.NoError(t, err)
		assert.True(t, now.After(last), "%s is not after %s", now, last)
		last = now
	}
}

func TestTokensNeverRepeatAcrossGoroutines(t *testing.T) {
	t.Parallel()
	var (
		seen sync.Map
		wg   sync.WaitGroup
	)
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				_, twice := seen.LoadOrStore(applier.NewToken()[:len("2026-01-02T15:04:05.000000000Z")], true)
				assert.False(t, twice, "not even the time")
			}
		})
	}
	wg.Wait()
}
