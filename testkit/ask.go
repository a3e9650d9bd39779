package testkit

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// Do asks the orchestrator for a verb, as a client does. Errors are *messages.Fault. emit takes the events of a verb that
// streams, and may be nil for the others.
func (f *Fleet) Do(ctx context.Context, verb messages.Verb, params proto.Message, emit actors.Emit) (proto.Message, error) {
	f.mu.Lock()
	system, alive := f.system, f.alive
	f.mu.Unlock()
	if system == nil {
		return nil, messages.Faultf(messages.CodeUnavailable, "the orchestrator is down")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(alive, func() { cancel(context.Cause(alive)) })()
	result, err := system.Do(ctx, verb, params, emit)
	if cause := context.Cause(alive); err != nil && ctx.Err() != nil && cause != nil {
		return nil, cause // whatever a dead process has to say of it
	}
	return result, err
}

// ask is Do for what has to work.
func ask[R proto.Message](f *Fleet, verb messages.Verb, params proto.Message) R {
	f.t.Helper()
	ctx, cancel := f.patience()
	defer cancel()
	got, err := f.insist(ctx, verb, params)
	if err != nil {
		f.t.Fatalf("testkit: %s: %v", verb, err)
	}
	return got.(R)
}

// Ask is Do for a client that waits for an orchestrator which is down or goes down. Errors are *messages.Fault.
func (f *Fleet) Ask(verb messages.Verb, params proto.Message) (proto.Message, error) {
	ctx, cancel := f.patience()
	defer cancel()
	return f.insist(ctx, verb, params)
}

// Queue lists the steps that wait, the oldest first.
func (f *Fleet) Queue() []*messages.QueueItem {
	f.t.Helper()
	return ask[*messages.WorkerQueueListResult](f, messages.VerbWorkerQueueList, &messages.WorkerQueueListParams{}).GetItems()
}

// Workers lists every worker that is known, connected or not, loopback too.
func (f *Fleet) Workers() []*messages.WorkerItem {
	f.t.Helper()
	return ask[*messages.WorkerListResult](f, messages.VerbWorkerList, &messages.WorkerListParams{All: true}).GetItems()
}

// WorkerNamed is what is known of one worker; it fails the test where there is none of that name.
func (f *Fleet) WorkerNamed(name string) *messages.WorkerDetail {
	f.t.Helper()
	return ask[*messages.WorkerDetail](f, messages.VerbWorkerShow, &messages.WorkerShowParams{Name: name})
}

// Actors lists the actors that live.
func (f *Fleet) Actors() []*messages.ActorItem {
	f.t.Helper()
	return ask[*messages.ActorTreeResult](f, messages.VerbActorTree, &messages.ActorTreeParams{}).GetItems()
}

// Show is a run with its jobs and steps.
func (f *Fleet) Show(run string) *messages.RunItem {
	f.t.Helper()
	return ask[*messages.RunItem](f, messages.VerbRunShow, &messages.RunShowParams{RunId: run})
}

// RunList lists every run that is known, the newest first.
func (f *Fleet) RunList() []*messages.RunSummary {
	f.t.Helper()
	return ask[*messages.RunListResult](f, messages.VerbRunList, &messages.RunListParams{}).GetItems()
}

// Metrics are the orchestrator's numbers.
func (f *Fleet) Metrics() actors.Metrics {
	f.t.Helper()
	ctx, cancel := f.patience()
	defer cancel()
	system, err := f.up(ctx)
	if err != nil {
		f.t.Fatalf("testkit: metrics: %v", err)
	}
	m, err := system.Metrics(ctx)
	if err != nil {
		f.t.Fatalf("testkit: metrics: %v", err)
	}
	return m
}

// A TokenOption changes a token that [Fleet.Token] creates.
type TokenOption func(*messages.WorkerTokenCreateParams)

// MaxEnrollments sets how many machines the token admits; below 0 is any number.
func MaxEnrollments(n int) TokenOption {
	return func(p *messages.WorkerTokenCreateParams) { p.MaxEnrollments = int32(n) }
}

// ValidFor sets how long the token is valid. Default: a day.
func ValidFor(d time.Duration) TokenOption {
	return func(p *messages.WorkerTokenCreateParams) { p.DurationMs = messages.Milliseconds(d) }
}

// Token creates an enrollment token and returns it whole, NAME.SECRET. It admits one machine unless an option says more.
func (f *Fleet) Token(name string, options ...TokenOption) string {
	f.t.Helper()
	p := &messages.WorkerTokenCreateParams{Name: name}
	for _, o := range options {
		o(p)
	}
	return ask[*messages.WorkerTokenCreateResult](f, messages.VerbWorkerTokenCreate, p).GetToken()
}

// RevokeToken takes a token back.
func (f *Fleet) RevokeToken(name string) {
	f.t.Helper()
	ask[*messages.WorkerTokenRevokeResult](f, messages.VerbWorkerTokenRevoke, &messages.WorkerTokenRevokeParams{Name: name})
}

// Tokens lists the enrollment tokens.
func (f *Fleet) Tokens() []*messages.TokenItem {
	f.t.Helper()
	return ask[*messages.WorkerTokenListResult](f, messages.VerbWorkerTokenList, &messages.WorkerTokenListParams{}).GetItems()
}
