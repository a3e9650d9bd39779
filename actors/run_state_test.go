package actors

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/workflow"
)

// runTest drives a run's machine by hand.
type runTest struct {
	t  *testing.T
	s  *runState
	at moment
}

// chain is a run of one job whose second step needs its first.
func chain(t *testing.T) *runTest {
	t.Helper()
	return &runTest{t: t, s: &runState{id: "r"}, at: walkNow()}
}

// takes gives the run a batch, and compares what it decides.
func (r *runTest) takes(want string, batch ...any) decision {
	r.t.Helper()
	r.at.now = r.at.now.Add(time.Second)
	var d decision
	r.s, d = stepRun(r.s, batch, r.at)
	var list []string
	for _, w := range strings.Split(want, "; ") {
		if w != "" {
			list = append(list, w)
		}
	}
	if diff := cmp.Diff(list, append(outline(d), owing(owedByRun(r.s, r.at))...), cmpopts.EquateEmpty()); diff != "" {
		r.t.Errorf("%T decides (-want +got):\n%s", batch[0], diff)
	}
	return d
}

func (r *runTest) submit() submitRun {
	return submitRun{file: "f", sourceDigest: "d", submitDigest: "d", plan: samplePlan(), answer: newAnswer()}
}

func (r *runTest) end(ordinal int, status messages.StepStatus) stepEnded {
	return stepEnded{r.s.stepAddress(ordinal), uint32(ordinal), status, "e", "c"}
}

func granted(ordinal int) slotsReserved {
	return slotsReserved{question: 900, grants: []grant{{ordinal: ordinal, ok: true, choice: choice{ticket: 7, worker: "a", version: 2, epoch: 5}}}}
}

const (
	asks     = "tell scheduler reserveSlots; arm reserve"
	bornIdle = "pending waiting; step queued"
)

func TestRun_IsAcceptedAndDispatchedInOneCommitWhereASlotIsFree(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	r.takes("step running; lease active; run running; if worker is at 2; if scheduler is at 5; "+
		"event run_started; event job_started; event step_started; event step_dispatched; "+
		"bear step; tell lease ensureLease; answer submitted", granted(0))
}

func TestRun_WithoutASlotItsStepsWait(t *testing.T) {
	t.Parallel()
	for name, no := range map[string]any{
		"the scheduler has none":               slotsReserved{question: 900, grants: []grant{{ordinal: 0, why: "waiting for something"}}},
		"the scheduler does not answer":        reserveElapsed{900},
		"the scheduler that was asked is gone": schedulerStarted{6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := chain(t)
			r.takes(asks, r.submit())
			want := bornIdle + "; run running; event run_started; event job_started; event step_started; event step_queued; answer submitted; owes scheduler offerSteps"
			if _, ok := no.(schedulerStarted); ok {
				want = strings.Replace(want, "answer submitted", "tell children schedulerStarted; answer submitted", 1)
			}
			r.takes(want, no)
		})
	}
}

func TestRun_ALateAnswerGivesItsSlotsBack(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	r.takes(bornIdle+"; run running; event run_started; event job_started; event step_started; event step_queued; answer submitted; owes scheduler offerSteps", reserveElapsed{900})
	d := r.takes("tell scheduler releaseSlot; owes scheduler offerSteps", granted(0))
	if got := d.effects[0].(tell).msg.(releaseSlot); got.ticket != 7 || got.dispatchID != "r.0.1" {
		t.Errorf("it gives back %+v, and would free what is not its own", got)
	}
}

func TestRun_AChoiceThatNoLongerHoldsIsDoneWithout(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	_, d := stepRun(r.s, []any{granted(0)}, r.at)
	got := r.takes(bornIdle+"; run running; event run_started; event job_started; event step_started; event step_queued; "+
		"tell scheduler releaseSlot; answer submitted; owes scheduler offerSteps", commitRefused{cmd: []any{granted(0)}, effects: d.effects})
	for _, e := range got.effects {
		if told, ok := e.(tell); ok {
			if _, lease := told.msg.(ensureLease); lease {
				t.Error("a lease is borne that was never written")
			}
		}
	}
}

func TestRun_WithoutSpaceItIsNotAcceptedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	_, d := stepRun(r.s, []any{granted(0)}, r.at)
	r.takes("tell scheduler releaseSlot; answer: no_space; leave",
		commitRefused{cmd: []any{granted(0)}, noSpace: true, effects: d.effects})
	if diff := cmp.Diff(&runState{id: "r", questions: 900}, r.s, cmp.AllowUnexported(runState{}, custody{})); diff != "" {
		t.Errorf("what is left of it:\n%s", diff)
	}
}

func TestRun_ThatGoesOnWaitsForSpace(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	stepRun(r.s, []any{granted(0)}, r.at)
	r.takes("tell step endNoted; "+asks, r.end(0, messages.StepSucceeded))
	no := slotsReserved{question: 901, grants: []grant{{ordinal: 1, why: "w"}}}
	_, d := stepRun(r.s, []any{no}, r.at)
	r.takes("arm space", commitRefused{cmd: []any{no}, noSpace: true, effects: d.effects})
	r.takes("", struct{}{})
	r.takes(asks, spaceElapsed{})
	r.takes(bornIdle+"; event step_started; event step_queued; owes scheduler offerSteps", reserveElapsed{902})
}

func TestRun_EndsAsItsStepsEnd(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		first  messages.StepStatus
		second messages.StepStatus // empty: it is skipped
		want   string
	}{
		{"all succeed", messages.StepSucceeded, messages.StepSucceeded, "run succeeded; event job_succeeded; event run_succeeded"},
		{"the last fails", messages.StepSucceeded, messages.StepFailed, "run failed; event job_failed; event run_failed"},
		{"the first fails, and what needs it is skipped", messages.StepFailed, "", "step skipped; run failed; event step_skipped; event job_failed; event run_failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := chain(t)
			r.takes(asks, r.submit())
			stepRun(r.s, []any{granted(0)}, r.at)
			if tt.second == "" {
				r.takes(tt.want+"; tell step endNoted; leave; leave", r.end(0, tt.first))
				return
			}
			r.takes("tell step endNoted; "+asks, r.end(0, tt.first))
			stepRun(r.s, []any{slotsReserved{question: 901, grants: []grant{{ordinal: 1, ok: true, choice: choice{worker: "a"}}}}}, r.at)
			r.takes(tt.want+"; tell step endNoted; leave; leave", r.end(1, tt.second))
		})
	}
}

func TestRun_IsCancelledOnceEveryStepHasEnded(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	stepRun(r.s, []any{granted(0)}, r.at)
	r.takes("step cancelled; run running; event step_cancelled; answer cancelAccepted; tell children cancelStep; arm cancel",
		cancelRun{by: "me", answer: newAnswer()})
	r.takes("answer cancelAccepted", cancelRun{by: "me", answer: newAnswer()})
	r.takes("tell children cancelStep; arm cancel", cancelElapsed{})
	r.takes("run cancelled; event job_cancelled; event run_cancelled; tell step endNoted; leave; leave", r.end(0, messages.StepCancelled))
	r.takes("answer cancelAccepted; leave", cancelRun{by: "me", answer: newAnswer()})
	r.takes("tell step endNoted; leave", r.end(0, messages.StepCancelled))
}

// cleaning is a run of which the first step runs and the second cleans up after it; a third needs the second.
func cleaning(t *testing.T) *runTest {
	t.Helper()
	r := chain(t)
	r.s.plan = nil
	submit := r.submit()
	submit.plan = &workflow.Plan{Name: "w", Jobs: []workflow.Job{{Name: "j", Steps: []int{0, 1, 2}}}, Steps: []workflow.Step{
		{Name: "s", Model: "m", Method: "n", OnWorkerLost: messages.LostRequeue},
		{Name: "clean", Model: "m", Method: "n", OnWorkerLost: messages.LostRequeue, Needs: []int{0}, When: []workflow.Condition{workflow.Always}},
		{Name: "more", Model: "m", Method: "n", OnWorkerLost: messages.LostRequeue, Needs: []int{1}},
	}}
	r.takes(asks, submit)
	stepRun(r.s, []any{granted(0)}, r.at)
	return r
}

func TestRun_ACancelledRunStillCleansUp(t *testing.T) {
	t.Parallel()
	r := cleaning(t)
	r.takes("step cancelled; run running; event step_cancelled; answer cancelAccepted; tell children cancelStep; arm cancel; arm cleanup",
		cancelRun{by: "me", answer: newAnswer()})
	r.takes("tell step endNoted; "+asks, r.end(0, messages.StepCancelled))
	stepRun(r.s, []any{slotsReserved{question: 901, grants: []grant{{ordinal: 1, ok: true, choice: choice{worker: "a"}}}}}, r.at)
	r.takes("run cancelled; event job_cancelled; event run_cancelled; tell step endNoted; leave; leave", r.end(1, messages.StepSucceeded))
}

func TestRun_ACleanUpThatTakesTooLongIsCancelledToo(t *testing.T) {
	t.Parallel()
	r := cleaning(t)
	stepRun(r.s, []any{cancelRun{by: "me", answer: newAnswer()}}, r.at)
	if c := r.s.cancelOf(); !c.run {
		t.Errorf("steps that clean up are cancelled at once: %+v", c)
	}
	r.takes("step cancelled; event step_cancelled; tell children cancelStep; arm cancel", cleanupElapsed{})
	if c := r.s.cancelOf(); c.run {
		t.Errorf("steps that clean up are not cancelled: %+v", c)
	}
	r.takes("run cancelled; event job_cancelled; event run_cancelled; tell step endNoted; leave; leave", r.end(0, messages.StepCancelled))
}

func TestRun_AForcedCancelLeavesNothingToCleanUp(t *testing.T) {
	t.Parallel()
	r := cleaning(t)
	stepRun(r.s, []any{cancelRun{by: "me", force: true, answer: newAnswer()}}, r.at)
	r.takes("run cancelled; event job_cancelled; event run_cancelled; tell step endNoted; leave; leave", r.end(0, messages.StepCancelled))
}

func TestStep_OneThatCleansUpOutlivesTheCancelOfItsRun(t *testing.T) {
	t.Parallel()
	s := stepState{cleansUp: true, status: messages.StepRunning, version: 3}
	at := walkNow()
	if got, d := stepStep(s, cancelStep{run: true, by: "me", at: at.now}, at); !got.cancelAt.IsZero() || len(d.writes) > 0 {
		t.Errorf("the cancel of the run: %+v", d)
	}
	for _, c := range []cancelStep{{by: "me", at: at.now}, {run: true, force: true, by: "me", at: at.now}} {
		s.def = &workflow.Step{}
		if got, d := stepStep(s, c, at); got.cancelAt.IsZero() || len(d.writes) == 0 {
			t.Errorf("%+v: %+v", c, d)
		}
	}
}

func TestRun_AnAllowedFailureIsNotTheRunsError(t *testing.T) {
	t.Parallel()
	r := chain(t)
	submit := r.submit()
	plan := *submit.plan
	plan.Steps = append([]workflow.Step(nil), plan.Steps...)
	plan.Steps[0].AllowFailure = true
	submit.plan = &plan
	r.takes(asks, submit)
	stepRun(r.s, []any{granted(0)}, r.at)
	r.takes("step skipped; run succeeded; event step_skipped; event job_succeeded; event run_succeeded; tell step endNoted; leave; leave",
		r.end(0, messages.StepFailed))
	if r.s.errText != "" {
		t.Errorf("the run has the error %q", r.s.errText)
	}
}

func TestRun_TheSameSubmissionAgainIsTheSameRun(t *testing.T) {
	t.Parallel()
	r := chain(t)
	other := r.submit()
	other.submitDigest = "another"
	r.takes(asks, r.submit())
	r.takes("", r.submit(), other) // both are answered by the commit
	r.takes(bornIdle+"; run running; event run_started; event job_started; event step_started; event step_queued; "+
		"answer submitted; answer submitted; answer: run_id_conflict; owes scheduler offerSteps", reserveElapsed{900})
	r.takes("arm rest", offersNoted{numbersAt(walkNow()) + 1})
	r.takes("answer submitted", r.submit())
	r.takes("answer: run_id_conflict", other)
}

func TestRun_ThatDoesNotExistSaysSo(t *testing.T) {
	t.Parallel()
	chain(t).takes("answer: not_found; leave", cancelRun{by: "me", answer: newAnswer()})
}

func TestRun_GathersWhatHasArrivedIntoOneCommit(t *testing.T) {
	t.Parallel()
	r := chain(t)
	c := r.submit()
	c.plan = wide(300)
	stepRun(r.s, []any{c}, r.at)
	_, d := stepRun(r.s, []any{reserveElapsed{900}}, r.at)
	if steps := births(d); steps != birthsPerCommit || !slices.Contains(outline(d), "again") {
		t.Errorf("the first commit bears %d steps, want %d, and the rest behind it", steps, birthsPerCommit)
	}
	stepRun(r.s, []any{struct{}{}}, r.at)
	_, d = stepRun(r.s, []any{reserveElapsed{901}}, r.at)
	if steps := births(d); steps != 300-birthsPerCommit {
		t.Errorf("the second commit bears %d steps", steps)
	}
	var ends []any
	for i := range 300 {
		ends = append(ends, r.end(i, messages.StepSucceeded))
	}
	_, d = stepRun(r.s, ends, r.at)
	if r.s.status != messages.RunSucceeded || len(d.writes) != 1 {
		t.Errorf("after all have ended it is %s with %d writes, want one", r.s.status, len(d.writes))
	}
}

// wide is a plan of n parallel steps.
func wide(n int) *workflow.Plan {
	plan := &workflow.Plan{Name: "fan", Jobs: []workflow.Job{{Name: "j"}}}
	for i := range n {
		plan.Jobs[0].Steps = append(plan.Jobs[0].Steps, i)
		plan.Steps = append(plan.Steps, workflow.Step{Name: fmt.Sprint(i), Model: "m", Method: "n"})
	}
	return plan
}

func births(d decision) int {
	n := 0
	for _, w := range d.writes {
		if w.kind == kindStep && w.replaces == 0 {
			n++
		}
	}
	return n
}

func TestRun_AnswersForStepsThatHaveLeft(t *testing.T) {
	t.Parallel()
	r := chain(t)
	r.takes(asks, r.submit())
	stepRun(r.s, []any{granted(0)}, r.at)
	stepRun(r.s, []any{r.end(0, messages.StepSucceeded)}, r.at)
	first := r.s.stepAddress(0)
	r.takes("tell lease leaseNoted", forStep{first, leaseEnded{lease: "r.0.1/1", worker: "a", outcome: &messages.Outcome{}}})
	r.takes("tell scheduler releaseSlot", forStep{first, assignStep{"r.0.q1", "r.0.2", choice{ticket: 3}}})
	r.takes("tell scheduler withdrawStep", forStep{first, queueDeadline{"r.0.q1"}})
	for _, at := range []address{{}, {kindStep, "r"}, {kindStep, "r/j"}, stepAddress("r", "j", "nobody")} {
		r.takes("tell lease leaseNoted", forStep{at, leaseEnded{lease: "r.0.1/1", outcome: &messages.Outcome{}}})
	}
}

// resting is a run whose first step waits in line, without an actor.
func restingRun(t *testing.T) *runTest {
	t.Helper()
	r := chain(t)
	stepRun(r.s, []any{r.submit()}, r.at)
	stepRun(r.s, []any{reserveElapsed{900}}, r.at)
	r.takes("arm rest", offersNoted{numbersAt(walkNow()) + 1})
	return r
}

func TestRun_BearsARestingStepForWhateverComesForIt(t *testing.T) {
	t.Parallel()
	for name, msg := range map[string]any{
		"a choice":           assignStep{"r.0.q1", "r.0.1", choice{ticket: 1}},
		"the auditor's word": settleAgain{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := restingRun(t)
			d := r.takes("bear step", forStep{r.s.stepAddress(0), msg})
			if got := d.effects[0].(bear).msg; got != msg {
				t.Errorf("it is given %v", got)
			}
			r.takes("bear step", forStep{r.s.stepAddress(0), msg}) // the one before may have crossed its leaving
			r.takes("", stepRests{0, 1})
			r.takes("bear step", forStep{r.s.stepAddress(0), msg})
		})
	}
}

func TestRun_RousesItsRestingStepsAFewAtATime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cmd  any
		want func(*runTest) any // what a roused step is given
	}{
		"for a new scheduler": {schedulerStarted{2}, func(*runTest) any { return nil }},
		"for a cancel":        {cancelRun{by: "me"}, func(r *runTest) any { return cancelStep{run: true, by: "me", at: r.at.now} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := chain(t)
			c := r.submit()
			c.plan = wide(100)
			stepRun(r.s, []any{c}, r.at)
			stepRun(r.s, []any{reserveElapsed{900}}, r.at)
			stepRun(r.s, []any{offersNoted{numbersAt(walkNow()) + 1}}, r.at)
			_, d := stepRun(r.s, []any{tt.cmd}, r.at)
			first := bears(d)
			if len(first) != rouseWidth {
				t.Fatalf("%d steps are roused at once, want %d", len(first), rouseWidth)
			}
			if diff := cmp.Diff(rouseStep{tt.want(r)}, first[0].msg, cmp.AllowUnexported(rouseStep{}, cancelStep{})); diff != "" {
				t.Errorf("a roused step is given (-want +got):\n%s", diff)
			}
			_, d = stepRun(r.s, []any{stepRests{0, 2}, stepUp{1}, r.end(2, messages.StepCancelled)}, r.at)
			if next := bears(d); len(next) != 3 {
				t.Errorf("after three are through, %d more are roused", len(next))
			}
			_, d = stepRun(r.s, []any{rouseElapsed{}}, r.at)
			if next := bears(d); len(next) != 0 {
				t.Errorf("after a while with news, %d more are roused", len(next))
			}
			_, d = stepRun(r.s, []any{rouseElapsed{}}, r.at)
			if next := bears(d); len(next) != rouseWidth {
				t.Errorf("after a while without news, %d more are roused", len(next))
			}
		})
	}
}

func TestRun_AStepThatRestsInTheLineOfADeadSchedulerIsRoused(t *testing.T) {
	t.Parallel()
	r := chain(t)
	stepRun(r.s, []any{r.submit()}, r.at)
	stepRun(r.s, []any{granted(0)}, r.at)
	r.takes("tell children schedulerStarted", schedulerStarted{6})
	r.takes("bear step; arm rouse", stepRests{0, 5})
}

func TestRun_RestsOnceAllItsStepsDo(t *testing.T) {
	t.Parallel()
	r := restingRun(t)
	r.takes("arm rest; rest", restElapsed{})
	r.takes("bear step", forStep{r.s.stepAddress(0), assignStep{"r.0.q1", "r.0.1", choice{ticket: 1}}})
	r.takes("", restElapsed{})
	r.takes("arm rest", stepRests{0, 1})
	// What has arrived beside the timer may be anything, and may want an answer.
	r.takes("tell router runUp; arm rest", restElapsed{}, wakeRun{})
}

func TestRun_SaysThatItIsUpWhenItsErrandsAreDone(t *testing.T) {
	t.Parallel()
	r := restingRun(t)
	r.takes("tell router runUp", wakeRun{})
	r.takes("tell children schedulerStarted; bear step; arm rouse", schedulerStarted{2}, wakeRun{})
	r.takes("tell router runUp", stepRests{0, 2})
	chain(t).takes("tell router runUp; leave", wakeRun{}) // there is no such run
}

// An offer that the scheduler cannot take is poison: each step offers itself then, and the bad one fails.
func TestRun_OffersThatAreGivenUpAreMadeOneByOne(t *testing.T) {
	t.Parallel()
	r := chain(t)
	stepRun(r.s, []any{r.submit()}, r.at)
	stepRun(r.s, []any{reserveElapsed{900}}, r.at)
	r.takes("bear step; arm rouse", offersGivenUp{numbersAt(walkNow()) + 1})
}

// bears are the steps that a decision gives something to.
func bears(d decision) []bear {
	var list []bear
	for _, e := range d.effects {
		if b, ok := e.(bear); ok {
			list = append(list, b)
		}
	}
	return list
}
