package actors_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/testkit"
)

// statusOf waits for a worker to be what it is to be.
func statusOf(f *testkit.Fleet, worker string, want messages.WorkerStatus) {
	f.T().Helper()
	f.Eventually("worker "+worker+" is "+string(want), func() bool { return f.WorkerNamed(worker).GetStatus() == string(want) })
}

// orderDrain asks for the drain of a worker.
func orderDrain(f *testkit.Fleet, worker string) {
	f.T().Helper()
	if _, err := f.Ask(messages.VerbWorkerDrain, &messages.WorkerDrainParams{Name: worker}); err != nil {
		f.T().Fatalf("drain %s: %v", worker, err)
	}
}

func drainPoints() []crashPoint {
	// A worker says that it drains, and gets nothing any more.
	said := func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		f.Settle()
		saysDraining(w)
		statusOf(f, "gpu-1", messages.WorkerDraining)
		run := f.Submit(oneStep(forEver))
		f.Advance(time.Minute)
		w.NoDispatch()
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
	}
	// A drain is asked for at the orchestrator, and the worker is told until it says so.
	ordered := func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu(), testkit.Persistent())
		f.Settle()
		orderDrain(f, "gpu-1")
		f.Eventually("the worker was told to drain", func() bool { return slices.Contains(w.Orders(), "drain") })
		within(t, 20*time.Second)
		f.Eventually("the worker is connected", w.Connected)
		w.SayDraining("drain was asked for")
		heard := len(w.Orders())
		f.Advance(time.Minute)
		if n := len(w.Orders()); n > heard+1 {
			t.Errorf("it was told %d times more though it drains", n-heard)
		}
		f.Submit(oneStep(forEver)).WaitEvent(messages.EventStepQueued)
		f.Advance(time.Minute)
		w.NoDispatch()
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
	}
	return []crashPoint{
		{row: "G1", point: "a worker drains and its word of it is lost", cases: []crashCase{
			{name: "and it refuses", tell: refusedByDrain},
			{name: "and the lease of its refusal panics", fault: panics(before("lease", "leaseFrame")), onDisk: oneActive, tell: refusedByDrain},
			{name: "and its actor panics at the refusal", fault: panics(before("worker", "leaseOver")), tell: refusedByDrain},
			{name: "and the process dies at the refusal", fault: dies(before("lease", "leaseFrame")), onDisk: oneActive, tell: refusedByDrain},
		}},
		{row: "G2", point: "a worker drains and the scheduler has not heard of it", cases: []crashCase{
			{name: "its actor panics", fault: panics(after("worker", "workerSays")), inFleet: "token gpu-1 enrolled, binding gpu-1/1/machine-1 bound, worker gpu-1 draining", tell: said},
			{name: "the scheduler panics", fault: panics(nth(2, before("scheduler", "workerKnown"))), inFleet: "token gpu-1 enrolled, binding gpu-1/1/machine-1 bound, worker gpu-1 draining", tell: said},
		}},
		{row: "G3", point: "the process dies while a draining worker finishes", cases: []crashCase{
			{name: "and it comes back to deliver", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run, next := f.Submit(oneStep(forEver)), f.Submit(oneStep(forEver))
				d := w.NextDispatch().Accept()
				w.SayDraining("signal")
				f.Crash()
				f.Advance(downTime)
				d.Succeed()
				f.Restart()
				w.Reconnect(testkit.StillDraining())
				run.WaitStatus(messages.RunSucceeded)
				statusOf(f, "gpu-1", messages.WorkerDraining)
				onceEach(f, run, "only")
				f.Advance(2 * time.Minute)
				w.NoDispatch()
				f.Worker("gpu-2", gpu(), testkit.AutoRun())
				next.WaitStatus(messages.RunSucceeded)
			}},
		}},
		{row: "G4", point: "the connection is cut with the acknowledgement of the last result", cases: []crashCase{
			{name: "of a draining worker", options: []testkit.Option{dropsAt(after("lease", "leaseFrame"))}, tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run := f.Submit(single)
				d := w.NextDispatch().Accept()
				w.SayDraining("signal")
				d.Succeed()
				run.WaitStatus(messages.RunSucceeded)
				if d.Done() {
					t.Error("the acknowledgement was not lost")
				}
				w.Reconnect(testkit.StillDraining())
				d.Repeat()
				f.Settle()
				if !d.Done() && !d.Aborted() {
					t.Error("the worker still has to wait for its acknowledgement")
				}
				onceEach(f, run, "only")
			}},
		}},
		{row: "G5", point: "the connection of a draining worker ends with a step in flight", cases: []crashCase{
			{name: "and it comes back to deliver", tell: func(t *testing.T, f *testkit.Fleet) {
				w, other := f.Worker("gpu-1", gpu()), f.Worker("gpu-2", testkit.Labels{"gpu": "true", "more": "yes"}, testkit.Draining())
				f.Settle()
				run := f.Submit(oneStep(forEver))
				d := w.NextDispatch().Accept()
				w.SayDraining("signal")
				w.Drop()
				f.Advance(50 * time.Second)
				if got := run.Step("only").GetStatus(); got != string(messages.StepRunning) {
					t.Errorf("within the grace the step is %s, want running", got)
				}
				other.NoDispatch()
				w.Reconnect(testkit.StillDraining())
				d.Succeed()
				run.WaitStatus(messages.RunSucceeded)
				onceEach(f, run, "only")
			}},
			{name: "and it does not come back", tell: goneInDrain(func(*testkit.Dispatch) {}, time.Minute)},
		}},
		{row: "G6", point: "a draining worker is killed", cases: []crashCase{
			{name: "without a word", tell: goneInDrain(func(*testkit.Dispatch) {}, time.Minute)},
			{name: "and has said so", tell: goneInDrain(func(d *testkit.Dispatch) { d.Result(&messages.DispatchResult{Status: "handed_back"}) }, 0)},
		}},
		{row: "G7", point: "an order to drain is lost", cases: []crashCase{
			{name: "with the connection", options: []testkit.Option{dropsAt(after("worker", "drainWorker"))}, tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				orderDrain(f, "gpu-1")
				if len(w.Orders()) != 0 {
					t.Error("the order was not lost")
				}
				w.Reconnect()
				f.Eventually("the worker was told to drain", func() bool { return slices.Contains(w.Orders(), "drain") })
				statusOf(f, "gpu-1", messages.WorkerDraining)
			}},
			{name: "with the worker's actor", fault: panics(after("worker", "drainWorker")), tell: ordered},
			{name: "with the worker's actor before the commit", fault: panics(before("worker", "drainWorker")), tell: ordered},
			{name: "with the worker's session", fault: panics(nth(2, before("session", "sessionFrame"))), tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu(), testkit.Persistent())
				f.Settle()
				orderDrain(f, "gpu-1")
				f.Settle()
				w.Send(&messages.Frame{Id: "anything", Body: &messages.Frame_Ack{Ack: &messages.Ack{}}})
				f.Advance(10 * time.Second)
				if n := len(w.Orders()); n < 2 {
					t.Errorf("it was told %d times, want again on its new connection", n)
				}
				w.SayDraining("drain was asked for")
				statusOf(f, "gpu-1", messages.WorkerDraining)
			}},
		}},
		{row: "G8", point: "a step that was handed back is reported, and the frame is lost", cases: []crashCase{
			{name: "and the worker comes back", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run := f.Submit(oneStep(forEver))
				d := w.NextDispatch().Accept()
				w.SayDraining("signal")
				w.Drop()
				d.Result(&messages.DispatchResult{Status: "handed_back"})
				f.Advance(5 * time.Second)
				w.Reconnect(testkit.StillDraining())
				run.WaitEvent(messages.EventStepQueued)
				f.Worker("gpu-2", gpu(), testkit.AutoRun())
				run.WaitStatus(messages.RunSucceeded)
				if got := run.Step("only").GetLosses(); got != 0 {
					t.Errorf("losses are %d, want none", got)
				}
				within(t, 10*time.Second)
			}},
			{name: "and it does not", tell: goneInDrain(func(*testkit.Dispatch) {}, time.Minute)},
			{name: "with its lease", fault: panics(nth(2, before("lease", "leaseFrame"))), onDisk: oneActive, tell: func(_ *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Settle()
				run := f.Submit(oneStep(forEver))
				d := w.NextDispatch().Accept()
				w.SayDraining("signal")
				d.Result(&messages.DispatchResult{Status: "handed_back"})
				run.WaitEvent(messages.EventStepQueued)
				f.Worker("gpu-2", gpu(), testkit.AutoRun())
				run.WaitStatus(messages.RunSucceeded)
			}},
		}},
		{row: "G9", point: "a dispatch crosses a drain", cases: []crashCase{
			{name: "before its commit", options: append(stalls(before("scheduler", "workerKnown"), time.Second), drainsAt(before("step", "assignStep"))), tell: crossedByDrain},
			{name: "after its commit", options: append(stalls(before("scheduler", "workerKnown"), time.Second), drainsAt(after("step", "assignStep"))), tell: crossedByDrain},
		}},
	}
}

// refusedByDrain has a worker that drains refuse what it gets: that is as good as its announcement.
func refusedByDrain(t *testing.T, f *testkit.Fleet) {
	f.Worker("gpu-1", gpu(), testkit.OnDispatch((*testkit.Dispatch).RefuseDraining))
	f.Settle()
	run := f.Submit(oneStep(forEver))
	run.WaitEvent(messages.EventStepQueued)
	statusOf(f, "gpu-1", messages.WorkerDraining)
	f.Worker("gpu-2", gpu(), testkit.AutoRun())
	run.WaitStatus(messages.RunSucceeded)
	onceEach(f, run, "only")
	if got := run.Step("only").GetLosses(); got != 0 {
		t.Errorf("losses are %d, want none", got)
	}
}

// goneInDrain has a draining worker leave with a step in flight, and not come back. The step waits again after that long.
func goneInDrain(last func(*testkit.Dispatch), want time.Duration) func(t *testing.T, f *testkit.Fleet) {
	return func(t *testing.T, f *testkit.Fleet) {
		w := f.Worker("gpu-1", gpu())
		f.Settle()
		run := f.Submit(oneStep(forEver))
		d := w.NextDispatch().Accept()
		w.SayDraining("signal")
		last(d)
		f.Settle()
		w.Drop()
		run.WaitEvent(messages.EventStepQueued)
		if got := sinceStart(); got != want {
			t.Errorf("it waits again after %s, want %s", got, want)
		}
		f.Worker("gpu-2", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
	}
}

// drainsAt has the worker gpu-1 begin to drain at a place, which comes when its enrollment is over.
func drainsAt(at testkit.PanicAt) testkit.Option {
	return testkit.WithCall(at, func(f *testkit.Fleet) {
		saysDraining(f.Find("gpu-1"))
		time.Sleep(time.Second)
	})
}

// saysDraining has a worker report that it drains, without waiting for an answer.
func saysDraining(w *testkit.Worker) {
	w.Send(&messages.Frame{Id: "drains", Body: &messages.Frame_Request{Request: messages.NewRequest(
		messages.VerbWorkerStatus, &messages.StatusParams{Intent: string(messages.IntentDraining), Reason: "signal"})}})
}

func crossedByDrain(t *testing.T, f *testkit.Fleet) {
	run := f.Submit(oneStep(forEver))
	run.WaitEvent(messages.EventStepQueued)
	f.Worker("gpu-1", gpu(), testkit.OnDispatch((*testkit.Dispatch).RefuseDraining))
	f.Advance(10 * time.Second)
	if n := f.Executions(run, "only"); n != 0 {
		t.Errorf("it was executed %d times by a worker that drains", n)
	}
	f.Worker("gpu-2", gpu(), testkit.AutoRun())
	run.WaitStatus(messages.RunSucceeded)
	onceEach(f, run, "only")
	statusOf(f, "gpu-1", messages.WorkerDraining)
}

func enrollPoints() []crashPoint {
	enrolled := func(t *testing.T, f *testkit.Fleet) {
		run := f.Submit(oneStep(forEver))
		w := f.Worker("gpu-1", gpu(), testkit.AutoRun())
		run.WaitStatus(messages.RunSucceeded)
		onceEach(f, run, "only")
		f.Eventually("the worker is connected", w.Connected)
		statusOf(f, "gpu-1", messages.WorkerIdle)
		if got := f.Tokens()[0].GetBindings(); len(got) != 1 {
			t.Errorf("the token has %d bindings, want one", len(got))
		}
		within(t, 30*time.Second)
	}
	const (
		unused = "token gpu-1 unused"
		bound  = "token gpu-1 enrolled, binding gpu-1/1/machine-1 bound"
		known  = bound + ", worker gpu-1 idle"
	)
	return []crashPoint{
		{row: "T1", point: "before the commit of a binding", cases: []crashCase{
			{name: "the token panics", fault: panics(before("token", "redeemToken")), inFleet: unused, tell: enrolled},
			{name: "the process dies", fault: dies(before("token", "redeemToken")), inFleet: unused, tell: enrolled},
			{name: "the token panics for ever", fault: fault{at: testkit.PanicAt{Stage: "decided", Kind: "token", Command: "redeemToken", Times: 6}}, inFleet: unused, tell: func(t *testing.T, f *testkit.Fleet) {
				f.Worker("gpu-1", gpu(), testkit.AutoRun()) // it is told of an internal error, and dials again
				f.Submit(single).WaitStatus(messages.RunSucceeded)
				within(t, 3*time.Minute)
			}},
		}},
		{row: "T2", point: "a binding is there and its worker is not", cases: []crashCase{
			{name: "the token panics", fault: panics(after("token", "redeemToken")), inFleet: bound, tell: enrolled},
			{name: "the worker panics", fault: panics(before("worker", "enrollWorker")), inFleet: bound, tell: enrolled},
			{name: "the process dies", fault: dies(before("worker", "enrollWorker")), inFleet: bound, tell: enrolled},
		}},
		{row: "T3", point: "a worker is enrolled and its answer is lost", cases: []crashCase{
			{name: "the worker panics", fault: panics(after("worker", "enrollWorker")), inFleet: known, tell: enrolled},
			{name: "the process dies", fault: dies(after("worker", "enrollWorker")), inFleet: known, tell: enrolled},
		}},
		{row: "T4", point: "a token is revoked while a machine enrolls", cases: []crashCase{
			{name: "before the commit of the worker", options: []testkit.Option{testkit.WithCall(before("worker", "enrollWorker"), func(f *testkit.Fleet) {
				f.Go(func() { f.RevokeToken("gpu-1") })
				time.Sleep(time.Second)
			})}, tell: func(t *testing.T, f *testkit.Fleet) {
				if _, err := f.Enroll("gpu-1", gpu()); codeOf(err) != messages.CodeTokenRevoked {
					t.Errorf("enroll: %v, want token_revoked", err)
				}
				for _, w := range f.Workers() {
					if w.GetConnected() {
						t.Errorf("worker %s is connected under a token that was revoked", w.GetName())
					}
				}
			}},
			{name: "and the token panics after its commit", fault: panics(after("token", "revokeToken")), inFleet: "token gpu-1 revoked, binding gpu-1/1/machine-1 bound, worker gpu-1 idle", tell: revoked},
			{name: "and the worker panics at the news", fault: panics(before("worker", "tokenGone")), tell: revoked},
			{name: "and the process dies after its commit", fault: dies(after("token", "revokeToken")), inFleet: "token gpu-1 revoked, binding gpu-1/1/machine-1 bound, worker gpu-1 idle", tell: revoked},
		}},
		{row: "T5", point: "a worker is enrolled and the scheduler has not heard of it", cases: []crashCase{
			{name: "the worker panics", fault: panics(after("worker", "enrollWorker")), inFleet: known, tell: enrolled},
			{name: "the scheduler panics", fault: panics(before("scheduler", "workerKnown")), inFleet: known, tell: enrolled},
			{name: "the process dies", fault: dies(before("scheduler", "workerKnown")), inFleet: known, tell: enrolled},
		}},
		{row: "T6", point: "ten machines race for three places", cases: []crashCase{
			{name: "and the process dies before the commit", fault: dies(before("token", "redeemToken")), inFleet: "token pool unused", tell: raced},
			{name: "and the process dies after it", fault: dies(after("token", "redeemToken")), tell: raced},
			{name: "and the token panics after it", fault: panics(after("token", "redeemToken")), tell: raced},
		}},
		{row: "T7", point: "the clock passes the end of a token", cases: []crashCase{
			{name: "while the process is down", tell: func(t *testing.T, f *testkit.Fleet) {
				w := f.Worker("gpu-1", gpu())
				f.Crash()
				f.Advance(25 * time.Hour)
				f.Restart()
				if err := w.TryReconnect(); codeOf(err) != messages.CodeTokenExpired {
					t.Errorf("to come back: %v, want token_expired", err)
				}
			}},
			{name: "and its actor panics then", fault: panics(before("token", "expiryElapsed")), tell: expired},
			{name: "and its actor panics before it has told its workers", fault: panics(after("token", "expiryElapsed")), inFleet: "token gpu-1 expired, binding gpu-1/1/machine-1 bound, worker gpu-1 idle", tell: expired},
			{name: "and the process dies then", fault: dies(before("token", "expiryElapsed")), tell: expired},
		}},
	}
}

// revoked takes back the token of a worker with a step in flight, and lets nothing of it stay.
func revoked(t *testing.T, f *testkit.Fleet) {
	w := f.Worker("gpu-1", gpu())
	f.Settle()
	run := f.Submit(oneStep(forEver))
	w.NextDispatch().Accept()
	f.RevokeToken("gpu-1")
	f.Eventually("the worker is disconnected", func() bool { return !w.Connected() && !f.WorkerNamed("gpu-1").GetConnected() })
	within(t, 10*time.Second)
	if err := w.TryReconnect(); codeOf(err) != messages.CodeTokenRevoked {
		t.Errorf("to come back: %v, want token_revoked", err)
	}
	run.WaitEvent(messages.EventStepWorkerLost, "worker=gpu-1")
	f.Worker("gpu-2", gpu(), testkit.AutoRun())
	run.WaitStatus(messages.RunSucceeded)
}

// expired has the token of a connected worker end.
func expired(t *testing.T, f *testkit.Fleet) {
	token := f.Token("gpu-1", testkit.ValidFor(time.Hour))
	w := f.Worker("gpu-1", gpu(), testkit.WithToken(token))
	f.Advance(time.Hour - time.Second)
	if !w.Connected() {
		t.Error("the worker was disconnected before its token's time")
	}
	f.Eventually("the worker is disconnected", func() bool { return !w.Connected() })
	f.Advance(downTime + time.Second)
	if err := w.TryReconnect(); codeOf(err) != messages.CodeTokenExpired {
		t.Errorf("to come back: %v, want token_expired", err)
	}
	within(t, time.Hour+10*time.Second)
}

// raced has ten machines enroll with a token for three.
func raced(t *testing.T, f *testkit.Fleet) {
	token := f.Token("pool", testkit.MaxEnrollments(3))
	f.Settle()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var codes []string
	for range 10 {
		wg.Go(func() {
			_, err := f.Enroll("pool", testkit.WithToken(token))
			mu.Lock()
			defer mu.Unlock()
			codes = append(codes, string(codeOf(err)))
		})
	}
	wg.Wait()
	slices.Sort(codes)
	spent := string(messages.CodeEnrollmentsSpent)
	if diff := cmp.Diff([]string{"", "", "", spent, spent, spent, spent, spent, spent, spent}, codes); diff != "" {
		t.Errorf("ten were told (-want +got):\n%s", diff)
	}
	if got := len(f.Tokens()[0].GetBindings()); got != 3 {
		t.Errorf("the token has %d bindings, want 3", got)
	}
}
