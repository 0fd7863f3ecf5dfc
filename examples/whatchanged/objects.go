package main

import (
	"context"
	"errors"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

func (p printer) tree(ctx context.Context, views gitopsprovider.Provider, w gitopsprovider.Workload) error {
	node, err := views.DependencyTree(ctx, w)
	if err != nil {
		return err
	}
	if p.json {
		if err := p.encode(node); err != nil {
			return err
		}
	} else if node.Answer == gitopsprovider.AnswerFound {
		p.print(node.Text())
	}
	return found(node.Answer, node.Message, answers(node)...)
}

// answers are those of all objects of a tree.
func answers(node *gitopsprovider.DepNode) []gitopsprovider.Answer {
	all := []gitopsprovider.Answer{node.Answer}
	for _, child := range node.Children {
		all = append(all, answers(child)...)
	}
	return all
}

// found is an error that says why an object was not found, or that the rest of what was read says too little.
func found(answer gitopsprovider.Answer, message string, rest ...gitopsprovider.Answer) error {
	if answer != gitopsprovider.AnswerFound {
		return errors.New(message)
	}
	for _, answer := range rest {
		if !answer.Established() {
			return errInPart
		}
	}
	return nil
}

func (p printer) status(ctx context.Context, views gitopsprovider.Provider, w gitopsprovider.Workload) error {
	status, err := views.ResourceStatus(ctx, w)
	if err != nil {
		return err
	}
	if p.json {
		if err := p.encode(status); err != nil {
			return err
		}
		return found(status.Answer, status.Message, status.EventsAnswer)
	}
	if status.Answer == gitopsprovider.AnswerFound {
		p.line("%s  %s", status.Workload, status.Ready)
		if status.Message != "" {
			p.line("  note: %s", status.Message)
		}
		for _, reference := range status.References {
			p.line("  %s: %s", reference.Field, reference.Value)
		}
	}
	p.events(status)
	return found(status.Answer, status.Message, status.EventsAnswer)
}

func (p printer) events(status gitopsprovider.ResourceStatus) {
	switch {
	case status.EventsMessage != "":
		p.line("\nNo Events: %s", status.EventsMessage)
	case len(status.Events) == 0:
		p.line("\nNo Events are kept of it.")
	default:
		p.line("\nEvents:")
	}
	for _, event := range status.Events {
		kind := "Normal"
		if event.Warning {
			kind = "Warning"
		}
		p.line("  %s  %s %s: %s (%s)%s", stamp(event.Time), kind, event.Reason, event.Message, event.From, times(event.Count))
	}
}

func (p printer) trace(ctx context.Context, views gitopsprovider.Provider, w gitopsprovider.Workload) error {
	trace, err := views.Trace(ctx, w)
	if err != nil {
		return err
	}
	first := trace.Steps[0]
	if p.json {
		if err := p.encode(trace); err != nil {
			return err
		}
	} else if first.Answer == gitopsprovider.AnswerFound {
		p.steps(trace)
	}
	var answers []gitopsprovider.Answer
	for _, step := range trace.Steps {
		answers = append(answers, step.Answer)
	}
	return found(first.Answer, first.Message, answers...)
}

func (p printer) steps(trace gitopsprovider.Trace) {
	for i, step := range trace.Steps {
		p.step(i, step)
	}
	for _, unknown := range trace.Unknown {
		p.line("not known: %s", unknown)
	}
}

func (p printer) step(i int, step gitopsprovider.TraceStep) {
	if i == 0 {
		p.line("%s", step.Workload)
	} else {
		relation := map[gitopsprovider.Relation]string{
			gitopsprovider.RelationManagedBy: "managed by", gitopsprovider.RelationOwnedBy: "owned by",
		}[step.Relation]
		confirmed := ""
		if step.Confirmed {
			confirmed = ", which lists it"
		}
		p.line("%s %s (%s%s)  %s", relation, step.Workload, step.By, confirmed, step.Ready)
	}
	for _, use := range step.Sources {
		revision := "nothing is applied of it"
		if use.Revision != "" {
			revision = "at " + short(use.Revision)
		}
		p.line("  from %s, %s", source(use.Source, use.Path), revision)
	}
}
