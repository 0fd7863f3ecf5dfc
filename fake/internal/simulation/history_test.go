package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// A history is what happened in one run, in order, and which laws it broke.
type history struct {
	mu     sync.Mutex
	start  time.Time
	lines  []line
	broken []string
}

// line is one thing that happened. It is put into words when somebody reads it.
type line struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

func newHistory() *history { return &history{start: time.Now()} }

// note notes that somebody did something. The args must not change afterwards.
func (h *history) note(who, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line{time.Since(h.start), who, format, args})
}

// breaks notes that a law was broken.
func (h *history) breaks(l law, format string, args ...any) {
	text := fmt.Sprintf("law %d, %s: ", l, l) + fmt.Sprintf(format, args...)
	h.note("!!!", "%s", text)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = append(h.broken, text)
}

// String is the whole history, one thing a line.
func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out strings.Builder
	for _, l := range h.lines {
		fmt.Fprintf(&out, "%12.6f %-8s ", l.at.Seconds(), l.who)
		fmt.Fprintf(&out, l.format, l.args...)
		out.WriteByte('\n')
	}
	return out.String()
}

func (h *history) violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// A law is one of those in docs/failure-modes.md, by its number there.
type law int

const (
	onlyWhatWasAsked law = iota + 1
	recordedFirst
	neverLeftResumed
	nobodysWorkIsOverwritten
	oneEnd
	neverMoreThanIsKnown
	theAppliersOwnWord
	quietWhenIdle
	// noneLost is no law of an applier's, but of the whole: what was decided is applied in the end.
	noneLost
)

func (l law) String() string {
	return [...]string{
		"", "only what was asked", "recorded first", "never left resumed", "nobody's work is overwritten", "one end",
		"never more than is known", "the applier's own word", "quiet when idle", "none lost",
	}[l]
}
