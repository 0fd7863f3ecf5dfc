package gitopsprovider

import (
	"context"
	"errors"
)

func (v *Views) Changes(ctx context.Context, window TimeWindow, sel Selector) (ChangeList, error) {
	return ChangeList{}, errors.New("todo")
}
func (v *Views) Diff(ctx context.Context, change Change) (Diff, error) {
	return Diff{}, errors.New("todo")
}
func (v *Views) DependencyTree(ctx context.Context, w Workload) (*DepNode, error) {
	return nil, errors.New("todo")
}
func (v *Views) Trace(ctx context.Context, w Workload) (Trace, error) {
	return Trace{}, errors.New("todo")
}
func (v *Views) WatchFailures(ctx context.Context, options FailureOptions) (<-chan FailureEvent, error) {
	return nil, errors.New("todo")
}
