package flux

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// baseline is what stood before a request, for Progress to compare with what stands now. Every part but the
// resourceVersion is a fingerprint, since others choose the length of a token.
type baseline struct {
	ResourceVersion string `json:"resourceVersion"`
	Requested       string `json:"requested,omitempty"`
	Handled         string `json:"handled,omitempty"`
	LastRun         string `json:"lastRun,omitempty"`
	Ready           string `json:"ready,omitempty"`
}

func baselineOf(ks kustomization) baseline {
	return baseline{
		ResourceVersion: ks.resourceVersion,
		Requested:       fingerprint(ks.requested),
		Handled:         fingerprint(ks.handled),
		LastRun:         fingerprint(ks.lastRun),
		Ready:           ks.ready.fingerprint(),
	}
}

// String is what Started.Baseline keeps.
func (b baseline) String() string {
	text, _ := json.Marshal(b)
	return string(text)
}

// parseBaseline reads Started.Baseline. An empty one is not known.
func parseBaseline(text string) (b baseline, known bool, err error) {
	if text == "" {
		return baseline{}, false, nil
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return baseline{}, false, fmt.Errorf("the operation's baseline is not one of package flux: %w", err)
	}
	if b.ResourceVersion == "" {
		// Every change would be one since an empty baseline.
		return baseline{}, false, errors.New("the operation's baseline is not one of package flux: it has no resourceVersion")
	}
	return b, true, nil
}

// ranSince reports whether a run came as far as applying since.
func (b baseline) ranSince(ks kustomization) bool { return fingerprint(ks.lastRun) != b.LastRun }

// judgedSince reports whether a run wrote Ready since. A run of a resumed Kustomization does so at a later
// generation even where it says the same again, because a resume is a new generation.
func (b baseline) judgedSince(ks kustomization) bool { return ks.ready.fingerprint() != b.Ready }

// fingerprint leaves out the message: a run puts the name of a temporary directory into it.
func (c condition) fingerprint() string {
	if c == (condition{}) {
		return ""
	}
	return fingerprint(fmt.Sprintf("%s/%s/%d/%s", c.status, c.reason, c.observedGeneration, c.lastTransitionTime))
}

func fingerprint(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
