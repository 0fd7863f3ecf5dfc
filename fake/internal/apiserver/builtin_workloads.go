package apiserver

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func defaultDeployment(object map[string]any) {
	spec := part(object, "spec")
	fill(spec, "replicas", int64(1))
	fill(spec, "revisionHistoryLimit", int64(10))
	fill(spec, "progressDeadlineSeconds", int64(600))
	strategy := part(spec, "strategy")
	fill(strategy, "type", string(appsv1.RollingUpdateDeploymentStrategyType))
	if text(strategy, "type") == string(appsv1.RollingUpdateDeploymentStrategyType) {
		rolling := part(strategy, "rollingUpdate")
		fill(rolling, "maxUnavailable", "25%")
		fill(rolling, "maxSurge", "25%")
	}
	defaultPod(part(part(spec, "template"), "spec"), string(corev1.RestartPolicyAlways))
}

func defaultJob(object map[string]any) {
	spec := part(object, "spec")
	if spec["completions"] == nil && spec["parallelism"] == nil {
		spec["completions"] = int64(1)
	}
	fill(spec, "parallelism", int64(1))
	fill(spec, "backoffLimit", int64(6))
	fill(spec, "completionMode", string(batchv1.NonIndexedCompletion))
	fill(spec, "suspend", false)
	fill(spec, "podReplacementPolicy", string(batchv1.TerminatingOrFailed))
	defaultPod(part(part(spec, "template"), "spec"), "")
}

func defaultPod(pod map[string]any, restartPolicy string) {
	fill(pod, "dnsPolicy", string(corev1.DNSClusterFirst))
	if restartPolicy != "" {
		fill(pod, "restartPolicy", restartPolicy)
	}
	fill(pod, "terminationGracePeriodSeconds", int64(corev1.DefaultTerminationGracePeriodSeconds))
	fill(pod, "schedulerName", corev1.DefaultSchedulerName)
	part(pod, "securityContext")
	for _, list := range []string{"initContainers", "containers"} {
		each(pod, list, defaultContainer)
	}
}

func defaultContainer(container map[string]any) {
	part(container, "resources")
	fill(container, "terminationMessagePath", corev1.TerminationMessagePathDefault)
	fill(container, "terminationMessagePolicy", string(corev1.TerminationMessageReadFile))
	fill(container, "imagePullPolicy", string(pullPolicy(text(container, "image"))))
	each(container, "ports", func(port map[string]any) { fill(port, "protocol", string(corev1.ProtocolTCP)) })
}

// pullPolicy is Always for an image that is named by the tag latest or by none.
func pullPolicy(image string) corev1.PullPolicy {
	tag := ""
	for i := len(image) - 1; i >= 0 && image[i] != '/'; i-- {
		if image[i] == '@' {
			return corev1.PullIfNotPresent
		}
		if image[i] == ':' {
			tag = image[i+1:]
		}
	}
	if tag == "" || tag == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// selectJobPods gives a job the selector and the labels that tell its pods from others'.
func selectJobPods(object map[string]any) {
	spec := part(object, "spec")
	if spec["manualSelector"] == true {
		return
	}
	u := &unstructured.Unstructured{Object: object}
	meta := part(part(spec, "template"), "metadata")
	labels := part(meta, "labels")
	labels[batchv1.ControllerUidLabel] = string(u.GetUID())
	labels["controller-uid"] = string(u.GetUID())
	labels[batchv1.JobNameLabel] = u.GetName()
	labels["job-name"] = u.GetName()
	spec["selector"] = map[string]any{"matchLabels": map[string]any{batchv1.ControllerUidLabel: string(u.GetUID())}}
}

func checkDeployment(v *version, object map[string]any) field.ErrorList {
	spec := part(object, "spec")
	var list field.ErrorList
	selector, _, _ := unstructured.NestedStringMap(spec, "selector", "matchLabels")
	expressions, _, _ := unstructured.NestedSlice(spec, "selector", "matchExpressions")
	if _, found := spec["selector"]; !found {
		list = append(list, field.Required(field.NewPath("spec", "selector"), ""))
	} else if len(selector)+len(expressions) == 0 {
		list = append(list, field.Invalid(field.NewPath("spec", "selector"), spec["selector"], "empty selector is invalid for deployment"))
	}
	labels, _, _ := unstructured.NestedStringMap(spec, "template", "metadata", "labels")
	for key, value := range selector {
		if labels[key] != value {
			list = append(list, field.Invalid(field.NewPath("spec", "template", "metadata", "labels"), labels, "`selector` does not match template `labels`"))
			break
		}
	}
	return append(list, checkTemplate(v, object)...)
}

// checkTemplate checks that the pods of a workload can be made: that they have containers with a name and an image.
func checkTemplate(_ *version, object map[string]any) field.ErrorList {
	pod := part(part(part(object, "spec"), "template"), "spec")
	at := field.NewPath("spec", "template", "spec", "containers")
	containers, _ := pod["containers"].([]any)
	if len(containers) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var list field.ErrorList
	for i := range containers {
		container, _ := containers[i].(map[string]any)
		for _, name := range []string{"name", "image"} {
			if text(container, name) == "" {
				list = append(list, field.Required(at.Index(i).Child(name), ""))
			}
		}
	}
	if policy := text(pod, "restartPolicy"); object["kind"] == "Job" && policy != "OnFailure" && policy != "Never" {
		list = append(list, field.Required(field.NewPath("spec", "template", "spec", "restartPolicy"),
			fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)))
	}
	return list
}

func checkSelectorUpdate(_ *version, object, old map[string]any) field.ErrorList {
	return apivalidation.ValidateImmutableField(part(object, "spec")["selector"], part(old, "spec")["selector"], field.NewPath("spec", "selector"))
}

func checkTemplateUpdate(_ *version, object, old map[string]any) field.ErrorList {
	now, before := part(object, "spec")["template"], part(old, "spec")["template"]
	if equality.Semantic.DeepEqual(now, before) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "template"), now, apivalidation.FieldImmutableErrorMsg)}
}
