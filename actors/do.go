package actors

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// askLimit is how long an edge waits for an actor. The question is repeated meanwhile: the actor may have panicked with
// it in hand.
const (
	askLimit = 30 * time.Second
	askFirst = time.Second
)

// ask puts a question to an actor, from the edge.
func (sys *System) ask(ctx context.Context, to address, question func(*answer) any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for wait := askFirst; ; wait *= 2 {
		a := newAnswer()
		sys.tell(to, question(a))
		again := time.NewTimer(wait)
		select {
		case got := <-a.ch:
			again.Stop()
			return got.result, got.err
		case <-again.C:
		case <-sys.failed:
			again.Stop()
			return nil, messages.Faultf(messages.CodeUnavailable, "the orchestrator stops after a fault")
		case <-ctx.Done():
			again.Stop()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, messages.Faultf(messages.CodeUnavailable, "no answer in %s", askLimit)
			}
			return nil, context.Cause(ctx)
		}
	}
}

// Do implements Orchestrator.
func (sys *System) Do(ctx context.Context, verb messages.Verb, params proto.Message, emit Emit) (proto.Message, error) {
	if err := sys.usable(); err != nil {
		return nil, err
	}
	switch p := params.(type) {
	case *messages.WorkflowRunParams:
		return sys.workflowRun(ctx, p, emit)
	case *messages.WorkflowValidateParams:
		return sys.workflowValidate(p)
	case *messages.RunListParams:
		return sys.runList(p)
	case *messages.RunShowParams:
		return sys.runShow(p)
	case *messages.RunWatchParams:
		return sys.runWatch(ctx, p, emit)
	case *messages.RunLogsParams:
		return sys.runLogs(ctx, p, emit)
	case *messages.RunCancelParams:
		return sys.runCancel(ctx, p)
	case *messages.WorkerListParams:
		return sys.workerList(ctx, p)
	case *messages.WorkerShowParams:
		return sys.workerShow(ctx, p)
	case *messages.WorkerQueueListParams:
		return sys.queueList(ctx)
	case *messages.WorkerTokenCreateParams:
		return sys.tokenCreate(ctx, p)
	case *messages.WorkerTokenListParams:
		return sys.tokenList()
	case *messages.WorkerTokenRevokeParams:
		return sys.tokenRevoke(ctx, p)
	case *messages.ActorTreeParams:
		return sys.actorTree(p)
	case *messages.WorkerDrainParams:
		return sys.workerDrain(ctx, p)
	case *messages.WorkerPauseParams:
		return sys.workerPause(ctx, p)
	case *messages.WorkerResumeParams:
		return sys.workerResume(ctx, p)
	case *messages.ActorInspectParams:
		return sys.actorInspect(ctx, p)
	case *messages.ActorWatchParams:
		return sys.actorWatch(ctx, p, emit)
	case *messages.ActorTraceParams:
		return sys.actorTrace(ctx, p)
	case *messages.ActorTopParams:
		return sys.actorTop(ctx, p)
	case *messages.WhyParams:
		return sys.why(ctx, p)
	case *messages.DoctorBooksParams:
		return sys.doctorBooks(ctx)
	case *messages.DataListParams:
		return sys.data.list(p)
	case *messages.DataVersionsParams:
		return sys.data.versions(p)
	case *messages.DataQueryParams:
		return sys.data.query(ctx, p)
	case *messages.BackupParams:
		return sys.backup(ctx, emit)
	case *messages.VersionParams:
		return &messages.VersionResult{
			Version: sys.cfg.Version, Protocol: messages.ProtocolVersion, StoreId: sys.journal.StoreID(), Epoch: float64(sys.journal.Epoch()),
		}, nil
	default:
		return nil, messages.Faultf(messages.CodeUnknownVerb, "unknown verb %q", string(verb))
	}
}

// workflowRun accepts a run, and follows it where that is wanted. The follower is there first, so that it gets a new run's
// events as they are committed, without a look into the journal.
func (sys *System) workflowRun(ctx context.Context, p *messages.WorkflowRunParams, emit Emit) (proto.Message, error) {
	if !p.GetFollow() {
		if err := sys.submit(ctx, p); err != nil {
			return nil, err
		}
		return &messages.WorkflowRunResult{RunId: p.GetRunId()}, nil
	}
	follower := sys.journal.Follow(p.GetRunId(), 0)
	defer follower.Close()
	if err := sys.submit(ctx, p); err != nil {
		return nil, err
	}
	status, err := sys.follow(ctx, follower, p.GetRunId(), 0, nil, emit)
	if err != nil {
		return nil, err
	}
	return &messages.WorkflowRunResult{RunId: p.GetRunId(), Status: string(status)}, nil
}

func (sys *System) submit(ctx context.Context, p *messages.WorkflowRunParams) error {
	if !short(p.GetRunId(), 64) || escape(p.GetRunId()) != p.GetRunId() {
		return messages.Faultf(messages.CodeInvalid, "runId %q is not 1 to 64 letters, digits, '.', '_' and '-': make a UUIDv7", p.GetRunId())
	}
	if len(p.GetInputs().GetFields()) > 0 {
		return messages.Faultf(messages.CodeInvalid, "inputs are not supported by this version")
	}
	file := p.GetFile()
	if file == "" {
		file = "workflow"
	}
	plan, digest, err := sys.parse(file, p.GetSource())
	if err != nil {
		return err
	}
	leave, err := sys.admit.enter(ctx, sys.counters.runsLive.Load())
	if err != nil {
		return err
	}
	defer leave()
	if err := sys.sources.keep(ctx, sys.journal, digest, p.GetSource()); err != nil {
		if errors.Is(err, persistence.ErrNoSpace) {
			return messages.Faultf(messages.CodeNoSpace, "the orchestrator's store is short of space: free some and submit again")
		}
		if ctx.Err() == nil && sys.distrust(err) {
			return messages.Faultf(messages.CodeUnavailable, "the orchestrator stops after a fault")
		}
		return err
	}
	_, err = sys.ask(ctx, runAddress(p.GetRunId()), func(a *answer) any {
		return submitRun{
			file: file, parent: p.GetParentRunId(), sourceDigest: digest, submitDigest: digest, plan: plan,
			limit: sys.cfg.QueueTimeout, answer: a,
		}
	})
	return err
}

func (sys *System) workflowValidate(p *messages.WorkflowValidateParams) (proto.Message, error) {
	file := p.GetFile()
	if file == "" {
		file = "workflow"
	}
	plan, _, err := sys.parse(file, p.GetSource())
	if err != nil {
		return nil, err
	}
	result := &messages.WorkflowValidateResult{Name: plan.Name, Jobs: int32(len(plan.Jobs)), Steps: int32(len(plan.Steps))}
	for _, w := range plan.Warnings {
		result.Warnings = append(result.Warnings, w.String())
	}
	return result, nil
}

func (sys *System) runCancel(ctx context.Context, p *messages.RunCancelParams) (proto.Message, error) {
	job, step := splitStep(p.GetStep())
	by := p.GetBy()
	if by == "" {
		by = "client"
	}
	got, err := sys.ask(ctx, runAddress(p.GetRunId()), func(a *answer) any {
		return cancelRun{job: job, step: step, by: by, force: p.GetForce(), answer: a}
	})
	if err != nil {
		return nil, err
	}
	accepted := got.(cancelAccepted)
	return &messages.RunCancelResult{RunId: p.GetRunId(), Status: string(accepted.status), CancelRequested: accepted.cancelRequested}, nil
}

// tokenCreate makes the secret here: actors see its digest only.
func (sys *System) tokenCreate(ctx context.Context, p *messages.WorkerTokenCreateParams) (proto.Message, error) {
	if err := messages.CheckName(p.GetName()); err != nil {
		return nil, messages.Faultf(messages.CodeInvalid, "%s", err.Error())
	}
	const year = 365 * 24 * time.Hour
	duration := messages.Duration(p.GetDurationMs())
	switch {
	case duration == 0:
		duration = 24 * time.Hour
	case duration < 0 || duration > 100*year:
		return nil, messages.Faultf(messages.CodeInvalid, "a token's duration is above zero and at most 100 years")
	}
	limit := p.GetMaxEnrollments()
	if limit == 0 {
		limit = 1
	}
	if err := sys.nameFree(p.GetName()); err != nil {
		return nil, err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never returns an error
	word := hex.EncodeToString(secret)
	digest := sha256.Sum256([]byte(word))
	got, err := sys.ask(ctx, tokenAddress(p.GetName()), func(a *answer) any {
		return createToken{digest: digest[:], duration: duration, max: limit, answer: a}
	})
	if err != nil {
		return nil, err
	}
	return &messages.WorkerTokenCreateResult{
		Name: p.GetName(), Token: p.GetName() + "." + word, ExpiresAt: messages.Time(got.(tokenIs).expiresAt), MaxEnrollments: maxValue(limit),
	}, nil
}

// nameFree refuses the name of a worker that is connected under another token.
func (sys *System) nameFree(name string) error {
	w := &messages.WorkerRecord{}
	version, err := sys.read(persistence.KindWorker, name, w)
	if err != nil {
		return err
	}
	if version > 0 && w.GetConnected() && w.GetToken() != name {
		return messages.Faultf(messages.CodeExists, "a connected worker has the name %s, from enrollment token %s: choose another", name, w.GetToken())
	}
	return nil
}

func (sys *System) tokenRevoke(ctx context.Context, p *messages.WorkerTokenRevokeParams) (proto.Message, error) {
	if err := messages.CheckName(p.GetName()); err != nil {
		return nil, messages.Faultf(messages.CodeInvalid, "%s", err.Error())
	}
	got, err := sys.ask(ctx, tokenAddress(p.GetName()), func(a *answer) any { return revokeToken{a} })
	if err != nil {
		return nil, err
	}
	return &messages.WorkerTokenRevokeResult{Name: p.GetName(), State: string(got.(tokenIs).state)}, nil
}

func maxValue(limit int32) *structpb.Value {
	if limit < 0 {
		return structpb.NewStringValue("unlimited")
	}
	return structpb.NewNumberValue(float64(limit))
}
