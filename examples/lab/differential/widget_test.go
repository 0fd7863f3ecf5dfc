package differential_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// widgetCRD has what a schema can ask of the server, more of it than Flux's and Argo CD's do.
const widgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: &schema {
      type: object,
      properties: {
        spec: {type: object, properties: {
          color: {type: string, default: red, enum: [red, green, blue], nullable: true},
          size: {type: integer, format: int32, minimum: 1, maximum: 10, default: 3},
          weight: {type: number, exclusiveMinimum: true, minimum: 0},
          port: {x-kubernetes-int-or-string: true},
          tags: {type: array, x-kubernetes-list-type: set, items: {type: string}, maxItems: 3},
          parts: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name, side], items: {type: object, required: [name], properties: {
            name: {type: string}, side: {type: string, default: left}, count: {type: integer}, nested: {type: object, x-kubernetes-map-type: atomic, properties: {a: {type: string}, b: {type: string}}}}}},
          plain: {type: array, items: {type: object, properties: {a: {type: string, default: filled}}}},
          limits: {type: object, additionalProperties: {type: integer}},
          open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: object, properties: {a: {type: string}}}}},
          when: {type: string, format: date-time},
          none: {type: string, nullable: true},
          either: {type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]},
        }},
        status: {type: object, properties: {phase: {type: string, minLength: 1}, observed: {type: integer}}},
      }}}
  - name: v2
    served: true
    storage: false
    deprecated: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {color: {type: string}, size: {type: integer, default: 4}, added: {type: string, default: new}, limits: {type: object, additionalProperties: {type: integer}}}},
      status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`

var widget = sample{
	resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	kind:     "Widget",
	status:   true,
	base:     m{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": m{}, "spec": m{"color": "green"}},
	spec: []fragment{
		spec("blue", "color"), spec("pink", "color"), spec(nil, "color"), spec(int64(5), "size"), spec(int64(50), "size"), spec(nil, "size"), spec(1.5, "size"), spec(0.5, "weight"), spec(int64(0), "weight"), spec(int64(2), "weight"),
		spec("80", "port"), spec(int64(80), "port"), spec(true, "port"),
		spec(l{"a", "b"}, "tags"), spec(l{"b", "c"}, "tags"), spec(l{"a", "a"}, "tags"), spec(l{"a", "b", "c", "d"}, "tags"), spec(l{}, "tags"),
		spec(l{m{"name": "p"}}, "parts"), spec(l{m{"name": "p", "count": int64(1)}, m{"name": "q"}}, "parts"), spec(l{m{"name": "p", "side": "right", "nested": m{"a": "1"}}}, "parts"), spec(l{m{"name": "p", "nested": m{"b": "1"}}}, "parts"),
		spec(l{m{"name": "p"}, m{"name": "p", "side": "left"}}, "parts"), spec(l{m{"side": "left"}}, "parts"), spec(l{m{"name": "p", "bogus": "x"}}, "parts"),
		spec(l{m{}, nil, m{"a": nil}}, "plain"), spec(l{m{"a": "x", "b": "y"}}, "plain"),
		spec(int64(1), "limits", "cpu"), spec(int64(2), "limits", "mem"), spec(nil, "limits", "cpu"), spec("much", "limits", "cpu"), spec(m{}, "limits"),
		spec(m{"x": m{"y": l{nil, int64(1)}}, "known": m{"a": "1", "b": "2"}}, "open"), spec(nil, "open", "x"), spec(m{"a": int64(1)}, "open", "known"),
		spec("2024-01-02T03:04:05Z", "when"), spec("noon", "when"), spec(nil, "none"), spec("x", "none"), spec(m{"a": "1"}, "either"), spec(m{"a": "1", "b": "1"}, "either"), spec(m{}, "either"),
		set(nil, "spec"), set(l{}, "spec"),
	},
	statuses: []fragment{
		status("Ready", "phase"), status("", "phase"), status(int64(1), "observed"), status(nil, "observed"), status("what", "bogus"), set(nil, "status"),
	},
	jsonPatch: []string{
		`{"op":"add","path":"/spec/tags","value":["j"]}`, `{"op":"add","path":"/spec/tags/-","value":"k"}`, `{"op":"add","path":"/spec/parts","value":[{"name":"j"}]}`, `{"op":"replace","path":"/spec/parts/0/count","value":7}`, `{"op":"remove","path":"/spec/parts/0"}`,
		`{"op":"add","path":"/spec/limits","value":{"j":1}}`, `{"op":"remove","path":"/spec/limits/cpu"}`, `{"op":"add","path":"/spec/weight","value":1.0}`,
	},
}

// widgetV2 are the same objects in another version.
var widgetV2 = sample{
	resource: schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "widgets"},
	kind:     "Widget",
	status:   true,
	base:     m{"apiVersion": "example.com/v2", "kind": "Widget", "metadata": m{}, "spec": m{"added": "x"}},
	spec: []fragment{
		spec("blue", "color"), spec(int64(5), "size"), spec(nil, "size"), spec("y", "added"), spec(nil, "added"), spec(int64(1), "limits", "cpu"), spec(int64(3), "limits", "cpu"), spec("x", "bogus"), set("example.com/v1", "apiVersion"),
	},
	statuses:  []fragment{status("Ready", "phase"), status(m{"any": "thing"}, "extra"), set(nil, "status")},
	jsonPatch: []string{`{"op":"add","path":"/spec/added","value":"j"}`, `{"op":"remove","path":"/spec/size"}`},
}

func readWidgetCRD() (*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSON([]byte(widgetCRD))
	if err != nil {
		return nil, err
	}
	crd := &unstructured.Unstructured{}
	return crd, crd.UnmarshalJSON(data)
}

// defineWidgets creates the widgets' definition on the real server and waits until it serves them.
func defineWidgets(ctx context.Context, client dynamic.Interface, crd *unstructured.Unstructured) error {
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the widgets' definition: %w", err)
	}
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(100 * time.Millisecond) {
		_, err1 := client.Resource(widget.resource).List(ctx, metav1.ListOptions{})
		_, err2 := client.Resource(widgetV2.resource).List(ctx, metav1.ListOptions{})
		if errors.Join(err1, err2) == nil {
			return nil
		}
	}
	return errors.New("the API server does not serve widgets within a minute")
}
