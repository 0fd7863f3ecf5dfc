package argocd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// baseline is what stood before a request, for Progress to compare with what stands now.
type baseline struct {
	// ResourceVersion is the one that the update carried, or, in a record, an earlier one.
	ResourceVersion string `json:"resourceVersion"`
	// State is a fingerprint of the record of the previous operation, which the update removed.
	State string `json:"state,omitempty"`
	// Replaced is who had started the operation that was left in progress, if there was one.
	Replaced string `json:"replaced,omitempty"`
}

// maxReplaced bounds the name in a baseline, which others choose, and of which JSON may make six bytes for each.
const maxReplaced = 100

// String is what Started.Baseline keeps.
func (b baseline) String() string {
	if len(b.Replaced) > maxReplaced {
		b.Replaced = b.Replaced[:maxReplaced] + "…"
	}
	text, _ := json.Marshal(b)
	return string(text)
}

// parseBaseline reads Started.Baseline. An empty one is not known.
func parseBaseline(text string) (b baseline, known bool, err error) {
	if text == "" {
		return baseline{}, false, nil
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return baseline{}, false, fmt.Errorf("the operation's baseline is not one of package argocd: %w", err)
	}
	if b.ResourceVersion == "" {
		return baseline{}, false, errors.New("the operation's baseline is not one of package argocd: it has no resourceVersion")
	}
	return b, true, nil
}

func fingerprint(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
