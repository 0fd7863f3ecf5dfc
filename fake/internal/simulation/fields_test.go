package simulation

import (
	"encoding/json"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"github.com/gitops-applier/gitops-applier/fake"
)

type fields map[string]any

func fieldsOf(raw []byte) fields {
	var f fields
	_ = json.Unmarshal(raw, &f)
	return f
}

func (f fields) at(path ...string) any {
	var value any = map[string]any(f)
	for _, name := range path {
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[name]
	}
	return value
}

func (f fields) has(path ...string) bool { return f.at(path...) != nil }

// startingToken returns the token that a request would start an operation by, or "".
func startingToken(r fake.Request) string {
	switch {
	case r.Verb == "patch" && r.Resource == kustomizations.Resource:
		body := fieldsOf(r.Body)
		if suspend, _ := body.at("spec", "suspend").(bool); suspend {
			return ""
		}
		token, _ := body.at("metadata", "annotations", fluxmeta.ReconcileRequestAnnotation).(string)
		return token
	case r.Verb == "update" && r.Resource == applications.Resource:
		info, _ := fieldsOf(r.Body).at("operation", "info").([]any)
		for _, one := range info {
			if pair, ok := one.(map[string]any); ok && pair["name"] == infoKey {
				token, _ := pair["value"].(string)
				return token
			}
		}
	}
	return ""
}
